"""What watching costs, and how much of that the expensive looks may take.

Only a part of an expensive look can be timed where it happens: hooks slow the pass they sit in, its
record is longer to make and to write. So the account is kept by the record: what one with a look
in it took longer than the quiet ones is the price of the look.
"""

from __future__ import annotations

QUIET_RECORDS = 64
"""The quiet level is a running mean over about so many records."""
LEAST_PART = 0.25
"""Of the budget, for the expensive looks, where quiet steps alone take more than the rest of it:
a fast loop is to be seen too."""
MOST_PART = 0.5
"""Of the budget, where quiet steps take next to nothing."""


class Budget:
    """An account in seconds.

    Args:
        share: of the training time, for everything we do.
    """

    __slots__ = ("_detail", "_loud", "_quiet", "_records", "_share", "elapsed", "extra")

    def __init__(self, share: float) -> None:
        self._share = share
        self.elapsed = 0.0
        """How long the loop has trained, without what it was held back."""
        self.extra = 0.0
        """What expensive looks have cost so far."""
        self._quiet = 0.0
        self._records = 0
        """Quiet ones, as far as they make the mean."""
        self._loud = self._detail = False

    def loud(self, *, detail: bool = False) -> None:
        """The record that is being made has an expensive look in it, a detail step or another."""
        self._loud = True
        self._detail = self._detail or detail

    def record(self, spent: float, elapsed: float) -> float:
        """A record was made.

        Args:
            spent: our own seconds since the one before.
            elapsed: all seconds since then.

        Returns:
            What a detail step in it has cost.
        """
        self.elapsed += elapsed
        if not self._loud:
            self._records = min(self._records + 1, QUIET_RECORDS)
            self._quiet += (spent - self._quiet) / self._records
            return 0.0
        cost = max(spent - self._quiet, 0.0)
        self.extra += cost
        of_detail = cost if self._detail else 0.0
        self._loud = self._detail = False
        return of_detail

    def part(self, step_seconds: float) -> float:
        """The share of the training time that is left for expensive looks."""
        quiet = self._quiet / step_seconds if step_seconds > 0 else 0.0
        return max(min(MOST_PART * self._share, self._share - quiet), LEAST_PART * self._share)

    def affords(self, seconds: float, step_seconds: float) -> bool:
        """Whether one more look of so many seconds keeps all of them inside their part."""
        return self.extra + seconds <= self.part(step_seconds) * self.elapsed

    def debt(self, step_seconds: float) -> float:
        """What they have cost beyond their part."""
        return max(self.extra - self.part(step_seconds) * self.elapsed, 0.0)
