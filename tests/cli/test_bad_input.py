"""Whatever is wrong with a command is said in one sentence on stderr; the exit code is 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from recorded_logs import healthy, write_log

from ampwatch.cli import main


@pytest.fixture(autouse=True)
def _work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("def main(): pass\n\nclass Trainer: pass\n")
    Path("broken.py").write_text("def main(:\n")
    Path("package").mkdir()
    Path("package/__init__.py").write_text("raise RuntimeError('imported')\n")
    Path("package/deep.py").write_text("from os import *\n")
    Path("image.py").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    Path("latin.py").write_bytes("# größer\n".encode("latin-1"))
    Path("shell.py").write_text("#!/bin/sh\necho hello\n")
    Path("book.ipynb").write_text("{}")
    Path("notes.txt").write_text("not a log\n")
    Path("empty.jsonl").touch()
    Path("ranks").mkdir()
    write_log(Path("run.jsonl"), healthy())


CASES = [
    ("rnu train.py", "no command 'rnu'; did you mean 'run'?"),
    ("train.py", "did you mean 'ampwatch run train.py'?"),
    ("run", "Missing argument"),
    ("run nothing.py", "there is no script nothing.py"),
    ("run trian.py", "did you mean train.py?"),
    ("run package", "is a folder"),
    ("run image.py", "is not a Python script"),
    ("run latin.py", "is not a Python script"),
    ("run shell.py", "is not a Python script"),
    ("run book.ipynb", "is a notebook"),
    ("run nowhere:main", "there is no module 'nowhere'"),
    ("run package.nowhere:main", "there is no module 'package.nowhere'"),
    ("run train:mian", "the module 'train' has no 'mian'; did you mean 'main'?"),
    ("run --lr 3 train.py", "No such option '--lr'"),
    ("run --json train.py", "--json goes with --headless"),
    ("demo --json", "--json goes with --headless"),
    ("demo linaer", "there is no demo 'linaer'; did you mean 'linear'?"),
    ("demo zzz", "there are: linear, "),
    ("demo linear --hedless", "there is no option --hedless; did you mean --headless?"),
    ("demo digits --daat x", "there is no option --daat; did you mean --data?"),
    ("demo --steps 0", "'--steps'"),
    ("demo --steps many", "'--steps'"),
    ("demo --seed -1", "'--seed'"),
    ("demo --rate 0", "'--rate'"),
    ("demo --rate nan", "'--rate'"),
    ("demo --dtype fp8", "'--dtype'"),
    ("demo --scaler on", "'--scaler'"),
    ("demo --device no/where", "'--device'"),
    ("demo --log package", "is a folder"),
    ("run --log notes.txt train.py", "is no log of ampwatch"),
    ("run --log train.py train.py", "is no log of ampwatch"),
    ("run --fail-on scale-collapse train.py", "--fail-on goes with --headless"),
    ("run --headless --fail-on scale-colapse train.py", "did you mean 'scale-collapse'"),
    ("demo --headless --fail-on nonsense", "there is no rule 'nonsense'; see ampwatch rules"),
    ("demo --headless --fail-on ,", "it names no rule"),
    ("rules scale_colapse", "there is no rule 'scale_colapse'; did you mean 'scale-collapse'"),
    ("rules zzz", "there is no rule 'zzz'; see ampwatch rules"),
    ("diagnose run.jsonl --fail-on zzz", "there is no rule 'zzz'"),
    *(
        (f"{command} {path}", words)
        for command in ("view", "view --follow", "diagnose", "diagnose --json")
        for path, words in (
            ("nothing.jsonl", "there is no log at nothing.jsonl"),
            ("notes.txt", "notes.txt is not a log of ampwatch"),
            ("image.py", "image.py is not a log of ampwatch"),
        )
    ),
    *(
        (f"{command} {path}", words)
        for command in ("view", "diagnose")
        for path, words in (
            ("empty.jsonl", "the log empty.jsonl is empty"),
            ("ranks", "the folder ranks holds no logs"),
        )
    ),
    ("view run.jsonl", "ampwatch diagnose says in text what is in a log"),
    ("view --follow empty.jsonl", "the dashboard needs a terminal"),
    ("check please", "unexpected extra argument"),
]


@pytest.mark.parametrize(("line", "words"), CASES)
def test_one_sentence_says_what_is_wrong(line: str, words: str) -> None:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 2
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("ampwatch: ")
    assert words in sentence


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_script_that_may_not_be_read_is_said() -> None:
    Path("train.py").chmod(0)
    done = CliRunner().invoke(main, ["run", "train.py"])
    assert "cannot be read: permission denied" in done.stderr


@pytest.mark.parametrize("command", ["demo", "run train.py"])
def test_without_a_terminal_the_way_out_is_named(command: str) -> None:
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 2
    assert "needs a terminal" in done.stderr
    assert "--headless" in done.stderr


@pytest.mark.parametrize("target", ["train:main", "train:Trainer.fit", "package.deep:anything"])
def test_what_cannot_be_told_without_importing_is_left_to_the_script(target: str) -> None:
    """It gets as far as missing a terminal, and nothing was imported on the way."""
    done = CliRunner().invoke(main, ["run", target])
    assert "needs a terminal" in done.stderr


def test_a_script_with_a_syntax_error_is_pythons_own_to_complain_about() -> None:
    done = CliRunner().invoke(main, ["run", "broken.py"])
    assert "needs a terminal" in done.stderr


def test_a_terminal_that_cannot_move_its_cursor_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from ampwatch.cli import terminal
    from ampwatch.errors import UsageError

    monkeypatch.setattr(terminal, "_is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm")
    terminal.require_terminal("")
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(UsageError, match="TERM=dumb"):
        terminal.require_terminal("")
