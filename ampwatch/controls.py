"""The knobs a person can turn while a run trains, and what was asked of them.

Each knob is declared here once. Its key, palette entry, command-line option, record field and the
mark on the plots all come from the declaration.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Value = float | str | bool | None


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing that can be changed while training runs.

    ``choices`` are gone through in turn; a ``factor`` multiplies; with neither the knob is a
    momentary action (``lasting`` false) or an on/off switch.
    """

    name: str
    neutral: Value
    words: str
    choices: tuple[Value, ...] = ()
    factor: float | None = None
    lasting: bool = True
    marks: bool = True
    """Whether a change is drawn on the plots."""


PAUSE = Knob("pause", False, "Pause or go on", choices=(False, True), marks=False)
STEP = Knob("step", None, "Take one step and pause", lasting=False, marks=False)
"""Its argument: how many steps, or None for one. A number is answered with their seconds."""
DTYPE = Knob(
    "dtype", None, "Switch what autocast lowers to", choices=("float16", "bfloat16", "float32")
)
SCALER = Knob("scaler", None, "Switch the scaler", choices=("dynamic", "static", "off"))
SCALE = Knob("scale", 1.0, "Double or halve the scale", factor=2.0, lasting=False)
TARGET_GAIN = Knob("target_gain", 1.0, "Enlarge the targets tenfold", factor=10.0)
LOSS_GAIN = Knob("loss_gain", 1.0, "Enlarge the loss tenfold", factor=10.0)
INJECT = Knob("inject", None, "Put one inf into the gradients", lasting=False)
EXPLAIN = Knob("explain", None, "Take the next step apart", lasting=False, marks=False)
"""Its argument: the name of the parameter to follow, or None for one that is telling."""
SPEED = Knob("speed", None, "Steps a second (none: flat out)", factor=2.0, marks=False)
STOP = Knob("stop", None, "Stop at the end of this step", lasting=False, marks=False)

KNOBS: tuple[Knob, ...] = (
    PAUSE,
    STEP,
    DTYPE,
    SCALER,
    SCALE,
    TARGET_GAIN,
    LOSS_GAIN,
    INJECT,
    EXPLAIN,
    SPEED,
    STOP,
)
KNOB_BY_NAME = {knob.name: knob for knob in KNOBS}


@dataclass(frozen=True, slots=True)
class Request:
    """One knob asked to take one value; for a momentary knob the value is its argument."""

    knob: str
    value: Value = None

    def to_json(self) -> str:
        return json.dumps({"knob": self.knob, "value": self.value})

    @classmethod
    def from_json(cls, line: str) -> Request:
        """Raises ValueError, KeyError or TypeError for anything that is not a request."""
        body = json.loads(line)
        return cls(KNOB_BY_NAME[body["knob"]].name, body["value"])


def _nowhere(request: Request) -> None:
    """A recorded run has nobody to ask."""


@dataclass(slots=True)
class Controls:
    """The values the screen shows for the knobs, and the way requests travel.

    A request is sent on at once and shown at once; the training side answers with what it really
    did (:meth:`answered`), which wins.
    """

    send: Callable[[Request], None] = _nowhere
    values: dict[str, Value] = field(
        default_factory=lambda: {knob.name: knob.neutral for knob in KNOBS}
    )

    def value(self, knob: Knob) -> Value:
        return self.values[knob.name]

    def request(self, knob: Knob, value: Value = None) -> None:
        """Ask for a value; what was really done comes back as a notice."""
        if knob.lasting:
            self.values[knob.name] = value
        self.send(Request(knob.name, value))

    def cycle(self, knob: Knob, current: Value = None) -> Value:
        """Ask for the choice after ``current`` (what the run shows), or after the last asked."""
        now = current if current is not None else self.values[knob.name]
        index = knob.choices.index(now) if now in knob.choices else -1
        value = knob.choices[(index + 1) % len(knob.choices)]
        self.request(knob, value)
        return value

    def multiply(self, knob: Knob, up: bool) -> None:
        """Turn a knob that has a factor one notch up or down."""
        assert knob.factor is not None
        notch = knob.factor if up else 1 / knob.factor
        if knob.lasting:
            now = self.values[knob.name]
            base = float(now) if isinstance(now, (int, float)) else 1.0
            self.request(knob, base * notch)
        else:
            self.request(knob, notch)

    def answered(self, knob: str, value: Any) -> None:
        """The training side says which value a knob has now."""
        if knob in self.values and isinstance(value, (int, float, str, bool, type(None))):
            self.values[knob] = value

    def reset(self) -> None:
        """Back to neutral, for a run that starts again."""
        for knob in KNOBS:
            self.values[knob.name] = knob.neutral
