"""The step axis: which steps a plot spans, in which column a step lies, and its ticks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ampwatch.plot import labels

FEWEST = 10
"""A run's first steps do not fill the width at once, or the axis would change with each step."""
FINE = 8
"""Parts of the window to which its ends are rounded."""
GAP = 4
"""Cells between labels."""


@dataclass(frozen=True, slots=True)
class StepAxis:
    lo: int
    hi: int
    """First and last step, both drawn."""

    def column(self, step: int, columns: int) -> int:
        """The column of a step among ``columns``, as ``History.sample`` spreads them."""
        return (step - self.lo) * columns // (self.hi - self.lo + 1)

    def ticks(self, columns: int) -> tuple[tuple[int, str], ...]:
        """Columns and labels, as many as there is room for."""
        return _ticks(self.lo, self.hi, columns)


@lru_cache(maxsize=64)
def step_axis(first: int, last: int) -> StepAxis:
    """The axis for a window of steps, its ends rounded outward."""
    last = max(first, last)
    unit = max(step for step in _steps(max(1, (last - first) // FINE)))
    lo = first // unit * unit
    hi = max(-(-last // unit) * unit, lo + FEWEST)
    return StepAxis(lo, hi)


@lru_cache(maxsize=64)
def _ticks(lo: int, hi: int, columns: int) -> tuple[tuple[int, str], ...]:
    every, power = 1, 1
    while True:
        for digit in (1, 2, 5):
            every = digit * power
            if (hi // every) + (-lo // every) + 1 > columns:
                continue
            steps = range(-(-lo // every) * every, hi + 1, every)
            columns_of = ((step - lo) * columns // (hi - lo + 1) for step in steps)
            ticks = tuple(zip(columns_of, labels.steps(steps, every), strict=True))
            if _fit(ticks, columns):
                return ticks
        power *= 10


def _fit(ticks: tuple[tuple[int, str], ...], columns: int) -> bool:
    """Whether labels centred on their ticks keep their distance."""
    ends = -GAP
    for column, label in ticks:
        start = min(max(column - len(label) // 2, 0), columns - len(label))
        if start < ends + GAP:
            return False
        ends = start + len(label)
    return True


def _steps(at_most: int) -> Iterator[int]:
    power = 1
    while power <= at_most:
        yield from (digit * power for digit in (1, 2, 5) if digit * power <= at_most)
        power *= 10
