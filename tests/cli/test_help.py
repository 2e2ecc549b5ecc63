"""The front door: help, version, and what loading it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

import ampwatch
from ampwatch.cli import COMMANDS, main

HEAVY = ("torch", "textual", "numpy", "rich", "plotext")


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in shown.stdout


def test_without_arguments_there_is_help_and_no_error() -> None:
    alone = CliRunner().invoke(main, [])
    assert alone.exit_code == 0
    assert alone.stdout == CliRunner().invoke(main, ["--help"]).stdout


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_the_packages(option: str) -> None:
    assert CliRunner().invoke(main, [option]).stdout == f"ampwatch {ampwatch.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["demo", "--list"],
        ["run", "--help"],
        ["learn", "--help"],
        ["check", "--help"],
        ["view", "--help"],
        ["diagnose", "--help"],
        ["rules", "--help"],
        ["compare", "--help"],
        ["nope"],
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(arguments: list[str]) -> None:
    program = f"""
import sys
from ampwatch.cli import main
try:
    main({arguments!r}, prog_name="ampwatch")
finally:
    print("loaded:", *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "loaded:"


def test_python_m_ampwatch_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ampwatch", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"ampwatch {ampwatch.__version__}\n"


def test_the_options_are_the_promised_ones() -> None:
    """Changing one is a visible decision."""
    shared = {
        "--headless",
        "--json",
        "--log",
        "--steps",
        "--seed",
        "--device",
        "--dtype",
        "--scaler",
        "--rate",
        "--fail-on",
    }
    expected = {
        "demo": shared | {"--list"},
        "learn": {"--list", "--check", "--device"},
        "run": shared,
        "view": {"--follow"},
        "diagnose": {"--json", "--fail-on"},
        "rules": {"--json"},
        "check": {"--json"},
        "compare": {
            "--steps",
            "--seed",
            "--device",
            "--variants",
            "--one-at-a-time",
            "--log",
            "--json",
        },
    }
    assert set(COMMANDS) == set(expected)
    for name, options in expected.items():
        command = main.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        found = {option for each in command.params for option in each.opts if option[0] == "-"}
        assert found == options
