"""Which backward passes are searched for where inf and NaN begin.

A search finds something only in a pass that goes wrong, and which one will is not known before. A
skip that is due to the scale is followed by another, or by none until the scale has grown again;
one that has other causes comes back in a rhythm, or at any time.
"""

from __future__ import annotations

import sys
from collections import deque

from ampwatch.probe.budget import Budget

NEVER = sys.maxsize
MOST_SEARCHES = 256
"""So many passes are searched, and so many times something may be found, until all has been well
for long."""
MOST_FOUND = 8
FIRST_SEARCH_STEPS, LONGEST_SEARCH_STEPS = 2, 64
"""After each skip that the scale does not explain the search goes on for longer: 2, 4, 8, … steps,
as time allows."""
MOST_VAIN = 8
"""After so many skips in a row with nothing wrong at the step behind them, that step has no right
to be searched any more."""
BEATS = 3
"""Skips at equal distances tell when the next one is due."""
FREE_SEARCHES = 64
"""So many searches are made whatever the budget says: five windows of 2 + 4 + 8 + 16 + 32 steps.
Skips that fall on one step in ten by chance are met in all but one of 700 runs (0.9^62)."""
FREE_SECONDS = 0.3
FREE_SHARE = 0.03
"""And no more of them than fit this, or this share of the training time so far: a price that is
paid once and is not noticed."""


class SearchPlan:
    """When to search, told by what has happened.

    Args:
        budget: of the expensive looks.
        patience: for how many steps to search after the first skip.
    """

    def __init__(self, budget: Budget, patience: int = FIRST_SEARCH_STEPS) -> None:
        self._budget = budget
        self.begins = NEVER
        """No pass is searched before that of this step."""
        self._armed_at = self._until = self._due = -1
        self._recent: deque[int] = deque(maxlen=BEATS)
        self._first_patience = self._patience = patience
        self._searches = self._found = self._vain = 0
        self._free = 0
        self._free_seconds = self._cost = 0.0
        self._freely = False

    def skipped(self, step: int, now: int, *, by_scale: bool, explained: bool) -> None:
        """A step was skipped beside a finite loss, or held inf and NaN without a scaler.

        Args:
            now: the step that is being taken; a later one where numbers come late.
            by_scale: the scale has just changed: then that is why.
            explained: its own pass was searched, and something found.
        """
        if self._recent and self._recent[-1] == step:
            return
        self._recent.append(step)
        if self._exhausted():
            return
        period = self._period()
        if period:
            self._due = step + period * max(1, -(-(now + 1 - step) // period))
        if not explained:
            self._armed_at = now
            if not by_scale and now >= self._until:
                self._until = now + self._patience
                self._patience = min(2 * self._patience, LONGEST_SEARCH_STEPS)
        self._begin_at(now + 1)

    def wants(self, step: int, step_seconds: float) -> bool:
        """Whether the pass of this step, which begins now, is to be searched."""
        self._freely = False
        if self._exhausted():
            self.begins = NEVER
            return False
        if step == self._due or (step == self._armed_at + 1 and self._vain < MOST_VAIN):
            return True
        if step > self._until:
            self._begin_at(step + 1)
            return False
        if self._budget.affords(self._cost, step_seconds):
            return True
        limit = max(FREE_SECONDS, FREE_SHARE * self._budget.elapsed)
        self._freely = self._free < FREE_SEARCHES and self._free_seconds + self._cost <= limit
        return self._freely

    def searched(self, step: int, seconds: float, found: bool) -> None:
        """A pass was searched, for so long."""
        self._searches += 1
        self._cost = seconds
        if self._freely:
            self._free += 1
            self._free_seconds += seconds
        if found:
            self.found()
            self._begin_at(step + 1)
            return
        if step == self._armed_at + 1:
            self._vain += 1
        self._begin_at(step)  # other passes of the same step may be the one

    def found(self) -> None:
        """A search has shown where it began."""
        self._found += 1
        self._patience, self._vain = self._first_patience, 0
        self._until = self._armed_at = -1

    def rested(self) -> None:
        """All has been well for long: what comes now may be something else."""
        self._searches = self._found = 0

    def end(self) -> None:
        """Nothing can be seen here."""
        self._searches = MOST_SEARCHES
        self.begins = NEVER

    def _exhausted(self) -> bool:
        return self._searches >= MOST_SEARCHES or self._found >= MOST_FOUND

    def _period(self) -> int:
        """The distance of the latest skips, if it is the same; 0 if it is not, or the next step
        is searched anyway."""
        if len(self._recent) < BEATS:
            return 0
        first, second, third = self._recent
        period = third - second
        return period if period == second - first and period > 1 else 0

    def _begin_at(self, step: int) -> None:
        """This step may be searched, or the first that may is a later one."""
        if step <= max(self._until, self._armed_at + 1):
            self.begins = step
        else:
            self.begins = self._due if self._due >= step else NEVER
