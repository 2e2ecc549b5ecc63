"""Skipped steps without a taken one between them, and what is kept of all of a kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ampwatch.run.origins import Origin
from ampwatch.run.skip_causes import OVERFLOW

LONE_SKIPS = 2
KEPT_STEPS = 20


@dataclass(slots=True)
class Burst:
    """Skipped steps without a taken one between them."""

    kind: str
    """Why, as far as it can be told: "settling" (a new scale looks for its level), "probe" (right
    after growth), "forward" (the loss was already inf or NaN), "static" (the scale did not react),
    "other"."""
    first: int
    last: int
    count: int
    scale_before: float | None
    """The scale of the first skipped step."""
    scale_last: float | None
    """The scale of the last skipped step."""
    scale_after: float | None
    """The scale after it: expected until the next step shows it."""
    tensors: int | None
    """Most non-finite gradient tensors in one step."""
    origin: str | None
    optimizer: str | None
    """Whose steps were skipped; None when it was more than one's."""
    latest_optimizer: str | None = None
    nonfinite_losses: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    """At how many steps which cause is likely."""
    found: set[str] = field(default_factory=set)
    """The causes that were found at one of them."""
    loss: float | None = None
    """The loss at the first of them, when it was inf or NaN."""
    usual_loss: float | None = None
    """The level of the loss before it."""
    clean_before: int = 0
    """Steps without an overflow before it, since the scale last changed."""
    values: int | None = None
    """Most non-finite gradient values in one step."""
    began: Origin | None = None
    """Where inf and NaN began at the first of them for which that was found."""

    @property
    def cause(self) -> str:
        """Of the burst as a whole: what was found, or else what most of it is likely to be."""
        if len(self.found) == 1 and not self.nonfinite_losses:
            return next(iter(self.found))
        return self.causes.most_common(1)[0][0] if self.causes else OVERFLOW


@dataclass(slots=True)
class Tally:
    """All bursts of one kind."""

    bursts: int = 0
    skips: int = 0
    lone: int = 0
    """How many bursts were no longer than one or two skips."""
    first: int | None = None
    last: int | None = None
    steps: list[int] = field(default_factory=list)
    """Where the first few of them began."""
    worst: Burst | None = None
    """The longest one."""

    def add(self, burst: Burst) -> None:
        self.bursts += 1
        self.skips += burst.count
        self.lone += burst.count <= LONE_SKIPS
        if self.first is None:
            self.first = burst.first
        self.last = burst.last
        if len(self.steps) < KEPT_STEPS:
            self.steps.append(burst.first)
        if self.worst is None or burst.count > self.worst.count:
            self.worst = burst

    def joined(self, other: Tally) -> Tally:
        """Both of them as one."""
        worst = [each.worst for each in (self, other) if each.worst is not None]
        return Tally(
            self.bursts + other.bursts,
            self.skips + other.skips,
            self.lone + other.lone,
            min((each.first for each in (self, other) if each.first is not None), default=None),
            max((each.last for each in (self, other) if each.last is not None), default=None),
            sorted(self.steps + other.steps)[:KEPT_STEPS],
            max(worst, key=lambda burst: burst.count, default=None),
        )
