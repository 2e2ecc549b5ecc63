"""A lesson is found by name, number or file; what is wrong with a file is one sentence."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ampwatch.errors import UsageError
from ampwatch.lessons import LESSONS
from ampwatch.lessons.progress import Progress, Reached, state_file
from ampwatch.lessons.shelf import find, mistake, read_lesson

ORDER = (
    "autocast", "underflow", "overflow", "growth", "static", "bfloat16", "clipping", "forward",
    "eight_bits",
)  # fmt: skip
HEAD = "from ampwatch.lessons import *\n"
WHOLE = (
    HEAD + "LESSON = Lesson(id='mine', title='Mine', goal='To see.', demo='linear', sources=(),"
    " parts=({parts},))\n"
)


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text)
    return path


def test_the_lessons_are_numbered_in_the_order_in_which_they_are_taught() -> None:
    assert tuple(lesson.id for lesson in LESSONS) == ORDER
    assert [lesson.number for lesson in LESSONS] == list(range(1, 10))


@pytest.mark.parametrize("lesson", LESSONS, ids=ORDER)
def test_a_shipped_lesson_has_no_mistake(lesson: object) -> None:
    assert mistake(lesson) is None  # type: ignore[arg-type]
    assert len(lesson.goal) <= 70  # type: ignore[attr-defined]


@pytest.mark.parametrize("asked", ["3", "overflow"])
def test_a_lesson_is_found_by_number_and_by_name(asked: str) -> None:
    assert find(asked, LESSONS).id == "overflow"


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="no lesson 'overflwo'; did you mean 'overflow'"):
        find("overflwo", LESSONS)
    with pytest.raises(UsageError, match="there are 1 to 9: autocast"):
        find("77", LESSONS)


def test_a_file_of_ones_own_is_a_lesson(tmp_path: Path) -> None:
    lesson = find(str(write(tmp_path, WHOLE.format(parts="Say('x')"))), LESSONS)
    assert (lesson.id, lesson.number, lesson.folder) == ("mine", 0, tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "holds no lesson: it needs LESSON = Lesson"),
        ("LESSON = (", "cannot be read: SyntaxError"),
        ("import nothing_of_that_name", "cannot be read: ModuleNotFoundError"),
        (HEAD + "LESSON = Lesson(id='mine')", "cannot be read: TypeError"),
        (WHOLE.replace("'mine'", "'my lesson'").format(parts="Say('x')"), "is not one word"),
        (WHOLE.format(parts="").replace("(,)", "()"), "it has no parts"),
        (WHOLE.format(parts="'words'"), "part 1: 'words' is no part"),
        (WHOLE.format(parts="Say(3)"), "part 1: its text is neither words nor a function"),
        (WHOLE.format(parts="Predict('?', choices=('a',))"), "a prediction has 2 or 3 choices"),
        (WHOLE.format(parts="Press('?', keys=' ')"), "it asks for no key"),
        (WHOLE.format(parts="Wait('?', until=3)"), "its condition is no function"),
        (WHOLE.format(parts="Point('?', holds=True)"), "its condition is no function"),
        (WHOLE.format(parts="Say('x', keep=len)"), "has no name to keep it under"),
        (WHOLE.format(parts="Say('x', tab='home')"), "there is no tab 'home'"),
        (WHOLE.format(parts="Say('x', look=('lr',))"), "there is no plot 'lr'"),
        (
            WHOLE.format(parts="Say('x', name='n'), Say('y', name='n')"),
            "part 2: a part before it has the name 'n' as well",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        read_lesson(write(tmp_path, text))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_said_not_to_be_there() -> None:
    with pytest.raises(UsageError, match="there is no lesson file"):
        find("nowhere/mine.py", LESSONS)


# Progress.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_progress_is_kept_where_the_system_keeps_state(home: Path) -> None:
    assert state_file() == home / "ampwatch" / "lessons.json"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_without_a_sensible_folder_it_is_the_usual_one(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_file() == tmp_path / ".local" / "state" / "ampwatch" / "lessons.json"


def test_progress_only_grows_and_is_there_the_next_time(home: Path) -> None:
    progress = Progress.load()
    assert progress.of("growth").words() == "new"
    progress.note("growth", 4, 9, False)
    progress.note("growth", 2, 9, False)
    assert Progress.load().of("growth") == Reached(4, 9, False)
    assert Progress.load().of("growth").words() == "part 4/9"
    progress.note("growth", 10, 9, True)
    progress.note("growth", 1, 9, False)
    assert Progress.load().of("growth") == Reached(9, 9, True)
    assert Progress.load().of("growth").words() == "done"
    assert [file.name for file in (home / "ampwatch").iterdir()] == ["lessons.json"]


def test_two_at_once_do_not_forget_each_other(home: Path) -> None:
    one, two = Progress.load(), Progress.load()
    one.note("growth", 3, 9, False)
    two.note("static", 5, 13, False)
    assert set(Progress.load().reached) == {"growth", "static"}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"lessons": 3}', '{"lessons": {"growth": 3}}', '{"lessons": {"growth": {}}}'],
)
def test_a_file_that_makes_no_sense_is_no_progress(text: str, home: Path) -> None:
    file = home / "ampwatch" / "lessons.json"
    file.parent.mkdir()
    file.write_text(text)
    progress = Progress.load()
    assert progress.of("growth") == Reached()
    progress.note("growth", 2, 9, False)
    assert json.loads(file.read_text())["lessons"]["growth"]["part"] == 2


def test_a_folder_that_cannot_be_written_fails_nothing(home: Path) -> None:
    (home / "ampwatch").write_text("a file in its place")
    progress = Progress.load()
    progress.note("growth", 2, 9, False)
    assert progress.of("growth").part == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_permission_fails_nothing(home: Path) -> None:
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    Progress.load().note("growth", 2, 9, False)
    assert Progress.load().of("growth") == Reached()
