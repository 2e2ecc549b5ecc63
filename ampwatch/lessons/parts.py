"""What a lesson is made of.

A lesson is a list of parts. A part says something, asks for a prediction, asks for a key, waits
for something, or points at what has happened. Whatever it says about the run is computed from the
run, and whatever it waits for is a condition on the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ampwatch.controls import Knob, Value
from ampwatch.lessons.scene import Scene

Text: TypeAlias = str | Callable[[Scene], str]
"""Words, or words with the numbers of this run; an empty line begins a new paragraph."""
Condition: TypeAlias = Callable[[Scene], bool]

CHOICES = "abc"
PATIENCE_STEPS = 400
"""So many steps without what a part waits for, and the lesson says that it did not happen."""


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of the run, in place of the plots."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()
    """Rows to look at."""


@dataclass(frozen=True, slots=True)
class Part:
    """What all parts have.

    Attributes:
        name: by which later parts ask what has happened since this one began.
        do: knobs that the lesson turns itself when the part begins.
        look: the plots it speaks of: "loss", "scale", "grad_norm", "nonfinite".
        tab: the tab that is opened: "overview", "range", "tensors", "events", "output".
        table: figures to show in place of the plots.
        keep: a figure of this moment that later parts find under the part's name; of a Point when
            it holds, of other parts when they begin.
        dtype, scaler: what the run has to be in; else the part says so, and nothing counts.
    """

    text: Text
    name: str = field(default="", kw_only=True)
    do: tuple[tuple[Knob, Value], ...] = field(default=(), kw_only=True)
    look: tuple[str, ...] = field(default=(), kw_only=True)
    tab: str = field(default="overview", kw_only=True)
    table: Callable[[Scene], Table | None] | None = field(default=None, kw_only=True)
    keep: Callable[[Scene], Any] | None = field(default=None, kw_only=True)
    dtype: str | None = field(default=None, kw_only=True)
    scaler: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Say(Part):
    """Says something; goes on at the learner's key."""


@dataclass(frozen=True, slots=True)
class Predict(Part):
    """Asks what will happen; the next Point that has an answer says whether it did."""

    choices: tuple[str, ...] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Waiting(Part):
    """Goes on by itself as soon as something has happened.

    Attributes:
        until: whether it has.
        steps: it takes at least so many steps.
        within: steps after which it is said that it has not happened.
        otherwise: what to say then.
        retry: steps after which the lesson does what it does once more; 0 is never.
    """

    until: Condition = field(default=lambda scene: True, kw_only=True)
    steps: int = field(default=0, kw_only=True)
    retry: int = field(default=0, kw_only=True)
    within: int = field(default=PATIENCE_STEPS, kw_only=True)
    otherwise: Text = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Press(Waiting):
    """Asks for keys; goes on when what they do is in the records, not when they are pressed.

    Attributes:
        keys: as on the keyboard, in their order: "t t", ".", "space"; a function tells them anew
            as the run goes on.
        again: they are pressed again and again until it has happened.
    """

    keys: Text = field(kw_only=True)
    again: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Wait(Waiting):
    """Waits; with ``do`` the lesson makes the change itself."""


@dataclass(frozen=True, slots=True)
class Point(Part):
    """Claims something about the run, with its numbers; only once it holds.

    Attributes:
        holds: whether the claim is true of this run.
        answer: which choice of the latest prediction came true.
        step: which step it speaks of; it is marked on the plots.
        within, otherwise: as in :class:`Waiting`.
    """

    holds: Condition = field(kw_only=True)
    answer: Callable[[Scene], str] | None = field(default=None, kw_only=True)
    step: Callable[[Scene], int | None] | None = field(default=None, kw_only=True)
    within: int = field(default=PATIENCE_STEPS, kw_only=True)
    otherwise: Text = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One lesson.

    Attributes:
        id: one word, by which it is asked for and its progress is kept.
        number: its place among the shipped ones; 0 in a lesson of your own.
        title: a few words.
        goal: what a learner knows afterwards, in one sentence.
        demo: a shipped demo by its name, or the path of a script, seen from the lesson's file.
        args: options of the demo.
        sources: where the facts that it teaches are from.
        folder: of the file of a lesson of your own.
    """

    id: str
    title: str
    goal: str
    demo: str
    parts: tuple[Part, ...]
    sources: tuple[str, ...]
    number: int = 0
    args: tuple[str, ...] = ()
    folder: Path | None = None
