"""The latest skipped steps one by one, and whether they come in a rhythm."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ampwatch.run.rhythm import Rhythm, rhythm_of
from ampwatch.run.skip_causes import BACKWARD, OVERFLOW

KEPT_SKIPS = 512


class Skip(NamedTuple):
    """One skipped step."""

    step: int
    kind: str
    """Of its burst, as far as it was known then."""
    cause: str
    apart: bool
    """Whether growth alone does not explain it: this scale had held before, or the loss was well
    above its level."""


class SkipList(deque[Skip]):
    """In fixed memory."""

    def __init__(self) -> None:
        super().__init__(maxlen=KEPT_SKIPS)
        self._known: dict[frozenset[str], tuple[Skip, Rhythm | None]] = {}

    def rhythm(self, causes: frozenset[str] = BACKWARD) -> Rhythm | None:
        """Whether skips of these causes come at every n-th step for another reason than the growth
        of the scale."""
        if not self:
            return None
        newest = self[-1]
        known = self._known.get(causes)
        if known is None or known[0] is not newest:
            skips = [each for each in self if each.kind != "static" and each.cause in causes]
            growth = OVERFLOW in causes
            apart = {each.step for each in skips if each.apart or not growth}
            rhythm = rhythm_of([each.step for each in skips], apart)
            known = self._known[causes] = (newest, rhythm)
        return known[1]

    def beside(self, rhythm: Rhythm, kind: str, causes: frozenset[str] = BACKWARD) -> list[int]:
        """Those of a kind that the rhythm does not explain."""
        return [
            each.step
            for each in self
            if each.kind == kind and each.cause in causes and not rhythm.holds(each.step)
        ]

    def not_lost(self, count: int) -> None:
        """The latest so many skips cost nothing: the same was learned from in the next step."""
        for back in range(1, min(count, len(self)) + 1):
            self[-back] = self[-back]._replace(apart=False)
