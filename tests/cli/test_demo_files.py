"""What the command line reads from a demo without running it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from ampwatch.cli import demo_files, main
from ampwatch.cli.demo_files import DEFAULT, demo_folder, demo_names, read_demo
from ampwatch.errors import UsageError


def test_the_list_has_one_line_for_each_and_the_default_first() -> None:
    lines = CliRunner().invoke(main, ["demo", "--list"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == demo_names()
    assert demo_names()[0] == DEFAULT


@pytest.mark.parametrize("name", demo_names())
def test_a_demo_says_what_it_is_and_how_fast_it_goes(name: str) -> None:
    demo = read_demo(name)
    assert demo.line.endswith(".")
    assert demo.pace is not None
    assert demo.pace > 0
    assert {"--device", "--seed", "--steps"} <= set(demo.options)


def test_every_file_that_is_a_demo_is_listed() -> None:
    files = {path.stem for path in demo_folder().glob("*.py") if ast.parse(path.read_text()).body}
    assert set(demo_names()) == {name for name in files if name[0] != "_"}


def test_an_installed_package_has_its_demos_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "ampwatch"
    (package / "cli").mkdir(parents=True)
    (package / "demos").mkdir()
    (package / "demos" / "linear.py").write_text('"""Installed."""\n')
    monkeypatch.setattr(demo_files, "__file__", str(package / "cli" / "demo_files.py"))
    assert demo_folder() == package / "demos"
    assert read_demo("linear").line == "Installed."
    assert read_demo("linear").pace is None


def test_an_installation_without_demos_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_files, "__file__", str(tmp_path / "ampwatch/cli/demo_files.py"))
    with pytest.raises(UsageError, match="missing from this installation"):
        demo_folder()
