"""What a lesson can ask about the run: what has happened since a part of it began."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from ampwatch.controls import PAUSE, Controls, Knob
from ampwatch.formats import Format
from ampwatch.record import StepAnatomy, StepRecord, TensorStats
from ampwatch.run import Run
from ampwatch.run.ranges import Fit, Spread, fit, spread_of


@dataclass(frozen=True, slots=True)
class Move:
    """The scale is another one than at the step before."""

    step: int
    """The first step with the new scale."""
    before: float
    after: float
    skipped: bool
    """The step before it was skipped."""
    by_hand: bool
    """Somebody pressed a key: it was set."""

    @property
    def grew(self) -> bool:
        return self.after > self.before and not self.by_hand

    @property
    def fell(self) -> bool:
        """After a skipped step, as it should."""
        return self.after < self.before and self.skipped and not self.by_hand


@dataclass(frozen=True, slots=True)
class Scene:
    """The run as it is now, and the step at which the part in question began.

    All figures are read off the run when they are asked for; nothing is remembered but step
    numbers, and what a part has asked to keep. A figure that has not been measured is None,
    never 0.
    """

    run: Run
    controls: Controls
    began: int = 0
    """Steps that the run had taken when the part began."""
    places: dict[str, int] = field(default_factory=dict)
    """The same for earlier parts, by their names."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Figures of earlier moments, by the names of the parts that kept them."""

    def since(self, name: str) -> Scene:
        """The same run seen from where the part of that name began."""
        return replace(self, began=self.places[name])

    # Now.

    @property
    def last(self) -> StepRecord | None:
        """The latest step, if it came after the part began."""
        last = self.run.last
        return last if last is not None and last.step >= self.began else None

    @property
    def dtype(self) -> str | None:
        return None if self.last is None else self.last.dtype

    @property
    def scaler(self) -> str | None:
        return None if self.last is None else self.last.scaler

    @property
    def scale(self) -> float | None:
        return None if self.last is None else self.last.scale

    @property
    def device(self) -> str:
        info = self.run.info
        return (info.device if info is not None else None) or "cpu"

    @property
    def paused(self) -> bool:
        return bool(self.controls.value(PAUSE))

    def asked(self, knob: Knob) -> Any:
        """The value that a knob was asked to take, or that the training answered with."""
        return self.controls.value(knob)

    # Since the part began.

    @property
    def steps(self) -> int:
        """How many steps were taken or skipped."""
        return max(self.run.steps - self.began, 0)

    @property
    def skips(self) -> Sequence[int]:
        """The numbers of the skipped steps."""
        steps = self.run.skipped_steps
        return steps[bisect_left(steps, self.began) :]

    @property
    def modes(self) -> set[tuple[str | None, str | None]]:
        """Each dtype and scaler mode that steps were taken with."""
        return {mode for mode, span in self.run.modes.items() if span.last >= self.began}

    @property
    def turned(self) -> int | None:
        """The step at which a knob was turned last."""
        marks = self.run.marks_between(self.began, self.run.steps)
        return next((mark.step for mark in reversed(marks) if mark.kind == "knob"), None)

    @property
    def anatomy(self) -> StepAnatomy | None:
        """The latest step that was taken apart."""
        anatomy = self.run.anatomy
        return anatomy if anatomy is not None and anatomy.step >= self.began else None

    @property
    def detail(self) -> TensorStats | None:
        """The latest detail step without inf and NaN."""
        stats = self.run.finite_tensors
        return stats if stats is not None and stats.step >= self.began else None

    @property
    def spread(self) -> Spread | None:
        """Where the gradients of that detail step lie, all of them together."""
        return None if self.detail is None else spread_of(self.detail)

    def fit(self, form: Format, scale: float | None) -> Fit | None:
        """What a format makes of these gradients at a scale; None is no scale."""
        spread = self.spread
        return None if spread is None or not spread.usual else fit(spread, form, scale)

    def happened(self, fact: str) -> bool:
        """Whether the hook has seen a fact."""
        seen = self.run.facts.get(fact)
        return seen is not None and seen.last >= self.began

    # Step by step.

    def value(self, quantity: str, step: int) -> float | None:
        """A series at one step; NaN where it was inf or NaN, None where it is not known."""
        return next(iter(self.values(quantity, step, step)), None)

    def values(self, quantity: str, first: int, last: int) -> list[float]:
        """A series from one step to another, both included, without the steps that lack it."""
        return [value for _, value in self.points(quantity, first, last)]

    def points(self, quantity: str, first: int, last: int) -> list[tuple[int, float]]:
        """The same with the steps."""
        history = self.run.series.get(quantity)
        if history is None or last < first:
            return []
        columns = history.sample(first, last, last - first + 1)
        return [
            (step, math.nan if bad else float(value))
            for step, (value, bad) in enumerate(zip(columns.lo, columns.bad, strict=True), first)
            if bad or value == value
        ]

    def median(self, quantity: str, first: int, last: int) -> float | None:
        """Of the finite values of a series from one step to another."""
        values = [v for v in self.values(quantity, first, last) if math.isfinite(v)]
        return median(values) if values else None

    def middle(self, quantity: str, steps: int) -> float | None:
        """The median over the latest steps."""
        return self.median(quantity, max(self.run.steps - steps, self.began), self.run.steps - 1)

    @property
    def moves(self) -> list[Move]:
        """Every change of the scale, oldest first."""
        first = max(self.began - 1, 0)
        history = self.run.series.get("scale")
        if history is None or self.run.steps <= first:
            return []
        columns = history.sample(first, self.run.steps - 1, self.run.steps - first)
        by_hand = {
            mark.step
            for mark in self.run.marks_between(first, self.run.steps)
            if mark.kind == "knob" and mark.text.startswith("scale ")
        }
        skips = set(self.since_step(first).skips)
        found, before = [], None
        for offset, value in enumerate(columns.lo):
            if value != value:
                continue
            step, now = first + offset, float(value)
            if before is not None and now != before:
                found.append(Move(step, before, now, step - 1 in skips, step in by_hand))
            before = now
        return found

    def since_step(self, step: int) -> Scene:
        """The same run seen from one of its steps."""
        return replace(self, began=step)
