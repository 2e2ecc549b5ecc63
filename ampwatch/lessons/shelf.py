"""Finds a lesson: a shipped one by its name or number, one of your own by its file."""

from __future__ import annotations

import difflib
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ampwatch.errors import UsageError
from ampwatch.lessons.parts import CHOICES, Lesson, Part, Point, Predict, Press, Waiting

NAME = "LESSON"
PLOTS = ("loss", "scale", "grad_norm", "nonfinite")
TABS = ("overview", "range", "tensors", "events", "output")
FEWEST_CHOICES = 2


def find(asked: str, lessons: Sequence[Lesson]) -> Lesson:
    """Raises UsageError where there is no such lesson."""
    if asked.endswith(".py") or "/" in asked:
        return read_lesson(Path(asked))
    for lesson in lessons:
        if asked in (lesson.id, str(lesson.number)):
            return lesson
    names = [lesson.id for lesson in lessons]
    near = difflib.get_close_matches(asked, names, 1)
    there = f"there are 1 to {len(names)}: {', '.join(names)}"
    hint = f"did you mean {near[0]!r}?" if near else there
    raise UsageError(f"there is no lesson {asked!r}; {hint}")


def read_lesson(path: Path) -> Lesson:
    """A lesson from a Python file that holds ``LESSON = Lesson(...)``.

    Raises:
        UsageError: the file cannot be read, or what it holds is no lesson that can be played.
    """
    if not path.is_file():
        raise UsageError(f"there is no lesson file {path}")
    try:
        names = runpy.run_path(str(path), run_name="ampwatch_lesson")
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"the lesson {path} cannot be read: {why}") from error
    lesson = names.get(NAME)
    if not isinstance(lesson, Lesson):
        raise UsageError(f"{path} holds no lesson: it needs {NAME} = Lesson(...)")
    lesson = replace(lesson, folder=path.absolute().parent)
    wrong = mistake(lesson)
    if wrong is not None:
        raise UsageError(f"the lesson {path} cannot be played: {wrong}")
    return lesson


def mistake(lesson: Lesson) -> str | None:
    """What is wrong with a lesson, in a sentence; None where nothing is."""
    if not lesson.id.isidentifier():
        return f"its id {lesson.id!r} is not one word"
    if not lesson.parts:
        return "it has no parts"
    names: set[str] = set()
    for number, part in enumerate(lesson.parts, 1):
        wrong = _mistake(part) if isinstance(part, Part) else f"{part!r} is no part"
        if wrong is None and part.name in names:
            wrong = f"a part before it has the name {part.name!r} as well"
        if wrong is not None:
            return f"part {number}: {wrong}"
        names.update({part.name} - {""})
    return None


def _mistake(part: Part) -> str | None:
    if not (isinstance(part.text, str) or callable(part.text)):
        return "its text is neither words nor a function"
    if isinstance(part, Predict) and not FEWEST_CHOICES <= len(part.choices) <= len(CHOICES):
        return f"a prediction has {FEWEST_CHOICES} or {len(CHOICES)} choices"
    if isinstance(part, Press) and isinstance(part.keys, str) and not part.keys.split():
        return "it asks for no key"
    condition = part.until if isinstance(part, Waiting) else getattr(part, "holds", None)
    if isinstance(part, (Waiting, Point)) and not callable(condition):
        return "its condition is no function"
    if part.keep is not None and not part.name:
        return "it keeps a figure, and has no name to keep it under"
    if part.tab not in TABS:
        return f"there is no tab {part.tab!r}; there are {', '.join(TABS)}"
    unknown = next((name for name in part.look if name not in PLOTS), None)
    if unknown is not None:
        return f"there is no plot {unknown!r}; there are {', '.join(PLOTS)}"
    return None
