"""`ampwatch learn` from the outside: the list, the unattended play, own files, a screen."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from ampwatch.cli import main
from ampwatch.cli.learn import following
from ampwatch.lessons import LESSONS
from ampwatch.lessons.progress import Progress
from tests.cli.terminals import terminal

OWN = """
    from ampwatch.lessons import Lesson, Point, Predict, Press, Say, Wait

    LESSON = Lesson(
        id="mine",
        title="My own",
        goal="To see that it works.",
        demo={demo!r},
        sources=(),
        parts=(
            Wait("A few steps.", steps=5),
            Predict("Will it be skipped?", choices=("yes", "no")),
            Press("One inf.", keys="i", until=lambda scene: len(scene.skips) >= {skips}, within=60),
            Point(
                lambda scene: f"Step {{scene.skips[0]}} was skipped.",
                holds=lambda scene: bool(scene.skips),
                answer=lambda scene: "a",
            ),
        ),
    )
"""
SCRIPT = """
    import torch, ampwatch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    watch = ampwatch.hook(model, optimizer, scaler)
    for step in watch.steps(range(100_000)):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.randn(8, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def own(folder: Path, demo: str = "linear", skips: int = 1) -> Path:
    path = folder / "mine.py"
    path.write_text(textwrap.dedent(OWN).format(demo=demo, skips=skips))
    return path


def learn(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ampwatch", "learn", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "XDG_STATE_HOME": str(home)},
    )


def test_the_list_has_a_line_a_lesson_with_how_far_it_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    progress = Progress.load()
    progress.note("autocast", 9, 9, True)
    progress.note("overflow", 4, 12, False)
    lines = CliRunner().invoke(main, ["learn", "--list"]).stdout.splitlines()
    assert len(lines) == 9
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].split()[:3] == ["1", "autocast", "done"]
    assert lines[2].split()[:4] == ["3", "overflow", "part", "4/12"]
    assert lines[3].split()[:3] == ["4", "growth", "new"]
    for lesson, line in zip(LESSONS, lines, strict=True):
        assert line.endswith(lesson.title)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "there is no lesson 'nothing'"),
        (["--list", "--check"], "two different things"),
        (["nowhere.py"], "there is no lesson file nowhere.py"),
        (["growth"], "needs a terminal"),
        (["growth", "--device", "a b"], "is not a device"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    done = learn(*arguments, home=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_check_plays_a_lesson_on_a_real_training(tmp_path: Path) -> None:
    done = learn("--check", "growth", "--device", "cpu", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    assert line.split()[:6] == ["4", "growth", "ok", "9", "of", "9"]
    assert list(tmp_path.iterdir()) == []  # nobody has learned anything


def test_check_plays_a_lesson_of_ones_own_on_ones_own_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    done = learn("--check", str(own(tmp_path, "train.py")), home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine  ok      4 of 4 parts" in done.stdout


def test_check_fails_where_a_condition_never_comes_true(tmp_path: Path) -> None:
    done = learn("--check", str(own(tmp_path, skips=1000)), home=tmp_path)
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "part 3 did not come true" in done.stdout
    assert "nothing is claimed" in done.stdout


def test_check_fails_where_the_training_fails(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise ValueError('no data')\n")
    done = learn("--check", str(own(tmp_path, "train.py")), home=tmp_path)
    assert done.returncode == 1
    assert "the training ended after 0 steps: ValueError: no data" in done.stdout


def test_a_lesson_without_its_script_is_said_to_have_none(tmp_path: Path) -> None:
    done = learn("--check", str(own(tmp_path, "nothing.py")), home=tmp_path)
    assert done.returncode == 2
    assert "the lesson 'mine' has no training: there is no script" in done.stderr


def test_in_a_terminal_a_lesson_is_begun_left_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with terminal("learn", "4") as shown:
        shown.wait_for("GradScaler has two rules")
        shown.press("n")
        shown.wait_for("Watch the scale")
        shown.press("q")
        assert shown.end() == 0
        assert shown.restored()
        assert "'Growth and backoff' was left at part" in shown.left_behind
    assert Progress.load().of("growth").part >= 2
    assert not Progress.load().of("growth").done


def test_in_a_terminal_the_menu_leads_to_a_lesson(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with terminal("learn") as shown:
        shown.wait_for("0 of 9 done")
        shown.press("7")
        shown.wait_for("Two copies of one net")
        shown.press("q")
        assert shown.end() == 0
        assert shown.restored()


def test_after_a_lesson_comes_the_next_and_after_the_last_none() -> None:
    assert following(LESSONS[0], LESSONS) is LESSONS[1]
    assert following(LESSONS[-1], LESSONS) is None
