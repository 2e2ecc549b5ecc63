"""What is to be drawn, in numbers: the columns of each curve and the span of their values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ampwatch.history import Columns, Flags, Floats
from ampwatch.plot.spec import Mark, PlotSpec
from ampwatch.plot.step_axis import StepAxis

REACH = 2.0
"""A reference line further from the curves than so many times their span is left out."""
LOG_REACH = 1000.0
"""The same on a log axis, as a factor."""


def curves(spec: PlotSpec, steps: StepAxis, dots: int) -> list[Columns]:
    """Each curve in ``dots`` columns, as its axis can show it."""
    sampled = [curve.history.sample(steps.lo, steps.hi, dots) for curve in spec.curves]
    return [_positive(columns) for columns in sampled] if spec.axis != "linear" else sampled


def span(spec: PlotSpec, drawn: list[Columns]) -> tuple[float, float] | None:
    """Smallest and largest value of all curves, near reference lines included."""
    lows, highs = [], []
    for columns in drawn:
        low, high = _least(columns.lo), _most(columns.hi)
        if low is not None and high is not None:
            lows.append(low)
            highs.append(high)
    if not lows:
        return None
    low, high = min(lows), max(highs)
    if spec.axis == "linear":
        reach = REACH * ((high - low) or abs(high))
        near = [at for at, _ in spec.lines if low - reach <= at <= high + reach]
    else:
        near = [at for at, _ in spec.lines if low / LOG_REACH <= at <= high * LOG_REACH]
    near = [at for at in near if math.isfinite(at) and (at > 0 or spec.axis == "linear")]
    return min([low, *near]), max([high, *near])


@dataclass(frozen=True, slots=True)
class Marked:
    """The columns that hold marks."""

    skips: npt.NDArray[np.intp]
    knobs: dict[int, str]
    """With what the latest knob of the column was turned to."""


def marked(marks: tuple[Mark, ...], steps: StepAxis, columns: int) -> Marked:
    """Where the marks of a plot are; those outside its steps are nowhere."""
    lo, hi = steps.lo, steps.hi
    skips: set[int] = set()
    knobs: dict[int, str] = {}
    for mark in marks:
        if lo <= mark.step <= hi:
            column = (mark.step - lo) * columns // (hi - lo + 1)
            if mark.kind == "skip":
                skips.add(column)
            else:
                knobs[column] = mark.text
    return Marked(np.fromiter(skips, dtype=np.intp, count=len(skips)), knobs)


def _positive(columns: Columns) -> Columns:
    """On a log axis zeros and negatives cannot be drawn: they count as bad."""
    with np.errstate(invalid="ignore"):
        low = columns.lo <= 0
    if not low.any():
        return columns
    hi = columns.hi.copy()
    hi[low & (columns.hi <= 0)] = np.nan
    bad: Flags = columns.bad | low
    return Columns(np.where(low, hi, columns.lo), hi, bad)


def _least(values: Floats) -> float | None:
    least = float(np.fmin.reduce(values, initial=np.inf))
    return least if math.isfinite(least) else None


def _most(values: Floats) -> float | None:
    most = float(np.fmax.reduce(values, initial=-np.inf))
    return most if math.isfinite(most) else None
