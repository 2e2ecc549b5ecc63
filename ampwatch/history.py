"""One series in fixed memory: recent steps raw, older ones as smallest and largest of a bucket.

A run may take a million steps, a screen has a few hundred columns. Buckets cover equally many
steps each and double when they run out, so however long a run is, there are several buckets to a
column, and no spike is ever averaged away.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

RAW = 1024
"""Recent values that are kept as they came; between this and twice as many."""
BUCKETS = 4096
"""At least half of them are in use on a long run: three to a dot column of a 300 cell wide plot."""
FURTHEST = 2**61
"""No step is beyond it, so that the difference of two fits 64 bits."""


@dataclass(slots=True)
class Columns:
    """What a series does in each of a number of equal parts of a window of steps."""

    lo: Floats
    """Smallest finite value; NaN where nothing finite was measured."""
    hi: Floats
    bad: Flags
    """Whether a NaN or an infinity was measured."""


class History:
    """Steps and their values, in the order of the steps; steps may repeat and have gaps."""

    __slots__ = (
        "_bad", "_first", "_folded", "_hi", "_latest", "_lo", "_steps", "_values", "_width",
    )  # fmt: skip

    def __init__(self) -> None:
        self._steps = array("q")
        self._values = array("d")
        self._first: int | None = None
        """Step at which bucket 0 starts; known when there are buckets."""
        self._latest = 0
        """Last step in a bucket."""
        self._width = 1
        """Steps to a bucket."""
        self._folded = 0
        """How many values are in buckets."""
        self._lo = self._hi = np.empty(0)
        self._bad: Flags = np.empty(0, dtype=np.bool_)

    def add(self, step: int, value: float) -> None:
        """Append a value; called once a step for each series, so it only appends."""
        steps = self._steps
        try:
            steps.append(step)
            self._values.append(value)
        except OverflowError:
            self._add_beyond(step, value)
        if len(steps) >= 2 * RAW:
            self._fold()

    @property
    def version(self) -> int:
        """Grows with each value added."""
        return self._folded + len(self._steps)

    @property
    def last(self) -> float | None:
        """The latest value, finite or not."""
        return self._values[-1] if self._values else None

    @property
    def last_step(self) -> int | None:
        return self._steps[-1] if self._steps else None

    @property
    def first_step(self) -> int | None:
        if self._first is not None:
            return self._first
        return self._steps[0] if self._steps else None

    def sample(self, first: int, last: int, columns: int) -> Columns:
        """The steps ``first`` to ``last``, both included, spread over ``columns`` equal parts.

        The value of step s is in part ``(s - first) * columns // (last - first + 1)``. A bucket
        counts as its middle step, so old values may be off by half a bucket's width.
        """
        count = max(columns, 0)
        result = Columns(np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, np.bool_))
        first, last = _within(first), _within(last)
        if count == 0 or last < first or not self._steps:
            return result
        steps, lo, hi, bad = self._old(first, last)
        new_steps, values = self._raw()
        inside = (new_steps >= first) & (new_steps <= last)
        if not inside.all():
            new_steps, values = new_steps[inside], values[inside]
        new_bad = ~np.isfinite(values)
        values[new_bad] = np.nan
        if len(steps):
            steps = np.concatenate((steps, new_steps))
            lo, hi = np.concatenate((lo, values)), np.concatenate((hi, values))
            bad = np.concatenate((bad, new_bad))
        else:
            steps, lo, hi, bad = new_steps, values, values, new_bad
        index = _spread(steps - first, last - first + 1, count)
        _gather(index, lo, hi, bad, result)
        return result

    def limits(self, first: int, last: int) -> tuple[float, float] | None:
        """Smallest and largest finite value of a window of steps, None where there is none."""
        whole = self.sample(first, last, 1)
        low, high = float(whole.lo[0]), float(whole.hi[0])
        return None if low != low else (low, high)

    def _raw(self) -> tuple[Integers, Floats]:
        # A copy: an array that is looked into cannot grow.
        steps = np.array(self._steps, dtype=np.int64)
        return np.clip(steps, -FURTHEST, FURTHEST, out=steps), np.array(self._values)

    def _old(self, first: int, last: int) -> tuple[Integers, Floats, Floats, Flags]:
        """Middle steps and contents of the buckets that reach into a window."""
        start = stop = 0
        if self._first is not None and self._first <= last and first <= self._latest:
            start = max(first - self._first, 0) // self._width
            stop = min((min(last, self._latest) - self._first) // self._width + 1, BUCKETS)
        middle = np.arange(start, stop, dtype=np.int64)
        if start < stop:
            middle = middle * self._width + ((self._first or 0) + (self._width - 1) // 2)
            np.clip(middle, first, min(last, self._latest), out=middle)
        part = slice(start, stop)
        return middle, self._lo[part], self._hi[part], self._bad[part]

    def _fold(self) -> None:
        """Move the older half of the raw values into buckets."""
        all_steps, all_values = self._raw()
        steps, values = all_steps[:RAW], all_values[:RAW]
        del self._steps[:RAW], self._values[:RAW]
        if self._first is None:
            self._first = int(steps.min())
            self._lo, self._hi = np.full(BUCKETS, np.nan), np.full(BUCKETS, np.nan)
            self._bad = np.zeros(BUCKETS, dtype=np.bool_)
            self._latest = self._first
        self._folded += RAW
        self._latest = max(self._latest, int(steps.max()))
        # A step from before the first one (a log merged out of order) is kept in the first bucket.
        offset = np.maximum(steps - self._first, 0)
        while (self._latest - self._first) // self._width >= BUCKETS:
            self._halve()
        bad = ~np.isfinite(values)
        values[bad] = np.nan
        fresh = Columns(np.full(BUCKETS, np.nan), np.full(BUCKETS, np.nan), np.zeros(BUCKETS, bool))
        _gather(offset // self._width, values, values, bad, fresh)
        np.fmin(self._lo, fresh.lo, out=self._lo)
        np.fmax(self._hi, fresh.hi, out=self._hi)
        self._bad |= fresh.bad

    def _halve(self) -> None:
        """Make each bucket twice as wide: half as many stay in use."""
        half = BUCKETS // 2
        for reduce, values, nothing in (
            (np.fmin, self._lo, np.nan),
            (np.fmax, self._hi, np.nan),
            (np.logical_or, self._bad, False),
        ):
            values[:half] = reduce(values[::2], values[1::2])
            values[half:] = nothing
        self._width *= 2

    def _add_beyond(self, step: int, value: float) -> None:
        """Keep what does not fit 64 bits as the furthest step, or as an infinity."""
        del self._steps[len(self._values) :]
        self._steps.append(_within(step))
        try:
            self._values.append(value)
        except OverflowError:
            self._values.append(np.inf if value > 0 else -np.inf)


def _within(step: int) -> int:
    return max(-FURTHEST, min(step, FURTHEST))


def _spread(offset: Integers, span: int, count: int) -> Integers:
    """Part of each step: ``offset * count // span``, also where the product is beyond 64 bits."""
    if span * count < 2**62:
        return offset * count // span
    part: Integers = (offset * (count / span)).astype(np.int64)
    return np.minimum(part, count - 1)


def _gather(index: Integers, lo: Floats, hi: Floats, bad: Flags, into: Columns) -> None:
    """Smallest, largest and bad of all entries with the same index."""
    if not len(index):
        return
    turn: npt.NDArray[Any] = np.diff(index)
    if (turn < 0).any():
        order = np.argsort(index, kind="stable")
        index, lo, hi, bad = index[order], lo[order], hi[order], bad[order]
        turn = np.diff(index)
    starts = np.concatenate(([0], np.flatnonzero(turn) + 1))
    parts = index[starts]
    into.lo[parts] = np.fmin.reduceat(lo, starts)
    into.hi[parts] = np.fmax.reduceat(hi, starts)
    into.bad[parts] = np.logical_or.reduceat(bad, starts)
