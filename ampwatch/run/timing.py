"""How fast a run goes and what watching costs it, by the records' own clock."""

from __future__ import annotations

from collections import deque

from ampwatch.record import StepRecord

RATE_SECONDS = 5.0
RATE_SPACING = 0.1


class Timing:
    """Takes each step's time; knows the rate of the last seconds and the mean overhead."""

    __slots__ = ("_due", "_last", "_overhead_seconds", "_recent", "_watched_seconds", "first")

    def __init__(self) -> None:
        self.first: StepRecord | None = None
        self._last: StepRecord | None = None
        self._recent: deque[tuple[float, int]] = deque(
            maxlen=round(RATE_SECONDS / RATE_SPACING) + 1
        )
        self._due = float("-inf")
        self._overhead_seconds = 0.0
        self._watched_seconds = 0.0

    def see(self, record: StepRecord) -> None:
        """One more step; runs once a step."""
        last = self._last
        if last is None:
            self.first = record
        elif record.overhead is not None:
            seconds = record.time - last.time
            share = record.overhead
            if seconds > 0 and share - share == 0:
                self._watched_seconds += seconds
                self._overhead_seconds += seconds * share
        if record.time >= self._due:
            self._recent.append((record.time, record.step))
            self._due = record.time + RATE_SPACING
        self._last = record

    def recent_rate(self) -> float | None:
        """Steps a second over the last few seconds."""
        if len(self._recent) < 2 or self._last is None:
            return None
        time, step = self._recent[0]
        seconds = self._last.time - time
        return (self._last.step - step) / seconds if seconds > 0 else None

    def whole_rate(self) -> float | None:
        """Steps a second over the whole run."""
        if self.first is None or self._last is None:
            return None
        seconds = self._last.time - self.first.time
        steps = self._last.step - self.first.step
        return steps / seconds if seconds > 0 and steps > 0 else None

    def overhead(self) -> float | None:
        """Share of the run's time that was spent in ampwatch."""
        if self._watched_seconds <= 0:
            return None
        return self._overhead_seconds / self._watched_seconds
