"""Where in a run something was seen, without keeping every place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

MOST_KEYS = 128
"""Made-up keys must not eat the memory."""

_K = TypeVar("_K")


@dataclass(slots=True)
class Span:
    """In how many steps something was seen, its first and its last one."""

    count: int
    first: int
    last: int

    def joined(self, other: Span) -> Span:
        """Both, of steps that differ."""
        first, last = min(self.first, other.first), max(self.last, other.last)
        return Span(self.count + other.count, first, last)


def extend(span: Span | None, step: int) -> Span:
    """It was seen once more; several times at one step count as one."""
    if span is None:
        return Span(1, step, step)
    span.count += step > span.last
    span.last = step
    return span


def note(spans: dict[_K, Span], key: _K, step: int) -> None:
    """It was seen at this step."""
    span = spans.get(key)
    if span is not None:
        span.count += step > span.last
        span.last = step
    elif len(spans) < MOST_KEYS:
        spans[key] = Span(1, step, step)
