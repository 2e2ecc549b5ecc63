"""Where plots are marked: skipped steps and turned knobs, exact at any zoom."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque

from ampwatch.plot.spec import Mark

MOST_KNOBS = 1000
MOST_SKIP_MARKS = 1024
"""More marks than any plot has columns: one of them stands for all skips of its column."""


class Marks:
    """Keeps every skipped step in eight bytes, and the latest changes of knobs."""

    __slots__ = ("knobs", "skipped_steps")

    def __init__(self) -> None:
        self.skipped_steps = array("q")
        self.knobs: deque[Mark] = deque(maxlen=MOST_KNOBS)

    def skip(self, step: int) -> None:
        self.skipped_steps.append(step)

    def knob(self, step: int, text: str) -> None:
        self.knobs.append(Mark(step, "knob", text))

    def between(self, first: int, last: int) -> tuple[Mark, ...]:
        """The marks of a window of steps, both ends included, in order.

        Where skips are too many to draw, the first one of each of 1024 equal parts stays.
        """
        skips = self._skips(first, last)
        knobs = [mark for mark in self.knobs if first <= mark.step <= last]
        return tuple(sorted([*skips, *knobs], key=_step_of))

    def _skips(self, first: int, last: int) -> list[Mark]:
        steps = self.skipped_steps
        start, stop = bisect_left(steps, first), bisect_right(steps, last)
        if stop - start <= MOST_SKIP_MARKS:
            return [Mark(step, "skip") for step in steps[start:stop]]
        width = (last - first + 1) / MOST_SKIP_MARKS
        edges = (first + width * part for part in range(MOST_SKIP_MARKS))
        chosen = sorted({bisect_left(steps, edge, start, stop) for edge in edges})
        return [Mark(steps[index], "skip") for index in chosen if index < stop]


def _step_of(mark: Mark) -> int:
    return mark.step
