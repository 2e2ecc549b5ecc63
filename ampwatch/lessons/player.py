"""Plays a lesson: which part is on, and when it goes on. Knows neither torch nor a screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ampwatch.controls import PAUSE, Controls
from ampwatch.lessons.parts import (
    CHOICES,
    Lesson,
    Part,
    Point,
    Predict,
    Press,
    Table,
    Text,
    Waiting,
)
from ampwatch.lessons.scene import Scene
from ampwatch.run import Run

NEXT, LEAVE_OUT = "n", "N"
SETTLING_STEPS = 20
"""A knob that the lesson has turned itself is in force after a few steps at the latest."""

NEEDS_WHAT_WAS_LEFT_OUT = (
    "this part needs what a part that was left out would have told. N leaves it out as well, r "
    "begins the lesson again"
)

READING = "reading"
"""All is said; the learner's key goes on."""
ASKING = "asking"
WAITING = "waiting"
BLOCKED = "blocked"
"""The run is not in the state that the part is about."""
LATE = "late"
"""It should have happened by now."""
FINISHED = "finished"

_T = TypeVar("_T")


class Player:
    """One lesson and the run that it is about.

    :meth:`advance` is called whenever the run has grown, :meth:`key` for each key of a learner.
    """

    def __init__(self, lesson: Lesson, controls: Controls) -> None:
        self.lesson = lesson
        self.controls = controls
        self._run: Run | None = None
        self._begin()

    def _begin(self) -> None:
        """Everything as before the first part."""
        self.index = 0
        self.left_out = 0
        """Parts that the learner went past although nothing had happened."""
        self.choice: str | None = None
        """What the learner predicted last."""
        self.question: Predict | None = None
        """The prediction that waits for its answer."""
        self.answer: str | None = None
        """Which choice came true, once a part has said so."""
        self.text = ""
        """Of this part, with the numbers of the moment at which it was said."""
        self.table: Table | None = None
        """As it was when a part made its claim; before that it moves with the run."""
        self.step: int | None = None
        """The step that it speaks of, once it has happened."""
        self.holds = False
        """The lesson itself has paused the run."""
        self.error: str | None = None
        """The lesson's own mistake, in a sentence."""
        self.state = WAITING
        self._entered: int | None = None
        self._done_at = 0
        self._settling = False
        """What the lesson itself has turned is not in force yet."""
        self._began = 0
        self._places: dict[str, int] = {}
        self._kept: dict[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Whether the last part is over."""
        return self.index >= len(self.lesson.parts)

    @property
    def done(self) -> bool:
        """Whether everything that the lesson speaks of has happened."""
        return self.finished and not self.left_out and self.error is None

    @property
    def part(self) -> Part | None:
        return None if self.finished else self.lesson.parts[self.index]

    @property
    def asked(self) -> tuple[str, ...]:
        """The keys that this part asks for, as the run is now."""
        part = self.part
        return tuple(self.said(part.keys).split()) if isinstance(part, Press) else ()

    @property
    def scene(self) -> Scene | None:
        """The run since the latest part that did or waited for something; None before its steps."""
        if self._run is None or self._entered is None:
            return None
        return Scene(self._run, self.controls, self._began, self._places, self._kept)

    @property
    def waited(self) -> int:
        """Steps since this part began."""
        assert self._run is not None
        return self._run.steps - (self._entered or 0)

    def advance(self, run: Run) -> None:
        """Go on as far as the run allows; a run that was started again begins the lesson anew."""
        if run is not self._run:
            self._begin()
            self._run = run
        if not run.steps or self.finished:
            return
        if self._entered is None:
            self._enter(run)
        self.holds = self.holds and bool(self.controls.value(PAUSE))
        while self._over(run):
            self._next(run)

    def key(self, key: str) -> str | None:
        """A key of the learner; returns a sentence where it can do nothing now."""
        part, run = self.part, self._run
        if run is None or part is None or self._entered is None:
            return None
        if isinstance(part, Predict) and key in CHOICES[: len(part.choices)]:
            self.choice, self.question, self.answer = key, part, None
        elif key in CHOICES:
            return "There is no such answer." if isinstance(part, Predict) else None
        elif key == LEAVE_OUT:
            self.left_out += self.state not in (READING, ASKING)
        elif self.state == ASKING:
            return "Choose an answer first; a wrong one costs nothing."
        elif self.state != READING:
            return "This goes on by itself when it has happened. N leaves the part out."
        self._next(run)
        self.advance(run)
        return None

    # How a part begins and ends.

    def _next(self, run: Run) -> None:
        if self.answer is not None:
            self.question = self.choice = self.answer = None
        if self.error == NEEDS_WHAT_WAS_LEFT_OUT:
            self.error = None  # the part after this one may do without
        self.index += 1
        if self.finished:
            self.state, self.text, self.table, self.step = FINISHED, "", None, None
        else:
            self._enter(run)

    def _enter(self, run: Run) -> None:
        part = self.lesson.parts[self.index]
        self._entered = run.steps
        if isinstance(part, Waiting):
            self._began = run.steps
        if part.name:
            self._places[part.name] = self._began
        self._settling = bool(part.do)
        self._do(part, run)
        self.state, self.text, self.table, self.step = WAITING, "", None, None
        if not isinstance(part, Point):
            self.text = self.said(part.text)
            self._keep(part)

    def _do(self, part: Part, run: Run) -> None:
        """Turn the knobs that the part turns."""
        self._done_at = run.steps
        for knob, value in part.do:
            self.controls.request(knob, value)
            if knob is PAUSE:
                self.holds = bool(value)

    def _over(self, run: Run) -> bool:
        """Look at the run; True when this part is over without a key."""
        part, scene = self.part, self.scene
        if part is None or scene is None or self.state in (READING, ASKING):
            return False
        if self._foreign(part, scene):
            return False
        if isinstance(part, Predict):
            self.state = ASKING
        elif isinstance(part, Point):
            self._claim(part, scene)
        elif isinstance(part, Waiting):
            ready = self.waited >= part.steps and scene.steps >= part.steps
            if ready and self._safely(lambda: part.until(scene), False):
                return True
            if part.retry and run.steps - self._done_at >= part.retry:
                self._do(part, run)
            self.state = LATE if self.waited > part.within else WAITING
        else:
            self.state = READING
        return False

    def _foreign(self, part: Part, scene: Scene) -> bool:
        """Whether the run is, or has been, in another state than the part is about."""
        last = scene.run.last
        assert last is not None
        now = _fits(part, (last.dtype, last.scaler))
        if not isinstance(part, Waiting):
            self.state = self.state if now else BLOCKED
            return not now
        if now and all(_fits(part, mode) for mode in scene.modes):
            return False
        # What came before does not count: the stretch of steps begins anew.
        self._settling = self._settling and self.waited <= SETTLING_STEPS
        self._began = scene.run.steps
        if part.name:
            self._places[part.name] = self._began
        if not self._settling:
            self._entered = scene.run.steps
        self.state = WAITING if self._settling or now else BLOCKED
        return True

    def _claim(self, part: Point, scene: Scene) -> None:
        if not self._safely(lambda: part.holds(scene), False):
            self.state = LATE if self.waited > part.within else WAITING
            return
        self.text = self.said(part.text)
        self._keep(part)
        self.table = self.tabulated(part)
        if part.step is not None:
            step = part.step
            self.step = self._safely(lambda: step(scene), None)
        if part.answer is not None and self.question is not None:
            answer = part.answer
            self.answer = self._safely(lambda: answer(scene), None)
        self.state = READING

    def _keep(self, part: Part) -> None:
        scene, keep = self.scene, part.keep
        if scene is not None and keep is not None:
            self._kept[part.name] = self._safely(lambda: keep(scene), None)

    # What a lesson's own functions say; a mistake in them must not end the dashboard.

    def said(self, text: Text) -> str:
        """A text with the numbers of now."""
        scene = self.scene
        if isinstance(text, str) or scene is None:
            return text if isinstance(text, str) else ""
        return self._safely(lambda: text(scene), "")

    def tabulated(self, part: Part) -> Table | None:
        """The part's table with the figures of now."""
        scene, table = self.scene, part.table
        if scene is None or table is None:
            return None
        return self._safely(lambda: table(scene), None)

    def _safely(self, ask: Callable[[], _T], fallback: _T) -> _T:
        try:
            return ask()
        except Exception as error:
            self.error = (
                NEEDS_WHAT_WAS_LEFT_OUT
                if self.left_out
                else f"part {self.index + 1} of the lesson {self.lesson.id!r} has a mistake: "
                f"{type(error).__name__}: {error}"
            )
            return fallback


def _fits(part: Part, mode: tuple[str | None, str | None]) -> bool:
    dtype, scaler = mode
    return part.dtype in (None, dtype) and part.scaler in (None, scaler)
