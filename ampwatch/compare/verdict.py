"""What became of the training in each variant, in a few words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ampwatch.compare.figures import FAILED, FINISHED, IMPOSSIBLE, Row
from ampwatch.compare.start import start_note
from ampwatch.compare.variants import BASELINE
from ampwatch.rules.telling import TROUBLING

BASE = "baseline"
SAME = "as fp32"
LESS = "learned less"
NOTHING = "learned nothing"
DIVERGED = "diverged"
UNCLEAR = "not clear"
STOPPED_EARLY = "stopped"
NO_STEPS = "no step"
GOOD = frozenset({BASE, SAME})

MOST_OF_IT = 0.9
"""Who has come so much of the way that fp32 came has learned the same, as far as a short run can
tell: the batches are the same, and rounding makes a difference of a few percent."""
TWICE = 2.0
"""At twice fp32's final loss it has not, however far both have come."""
HARDLY = 0.2
"""Batches differ from each other by about as much in these few steps."""
ALL = 0.9
"""A run that skips nearly every step, or whose gradients are nearly all 0, cannot learn."""
CHANGE = 0.02
"""Where fp32's own loss has moved less than so much of its start, or less than it differs from
batch to batch, it tells nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    variant: str
    words: str
    why: str = ""
    """The worst finding about the run, or the error that ended it."""

    @property
    def good(self) -> bool:
        return self.words in GOOD


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """One a row, in their order."""
    base = next((row for row in rows if row.variant.name == BASELINE), None)
    alike = start_note(rows) is None
    return [Verdict(row.variant.name, _words(row, base, alike), _why(row)) for row in rows]


def _words(row: Row, base: Row | None, alike: bool) -> str:
    if row.status in (FAILED, IMPOSSIBLE):
        return row.status
    if not row.steps:
        return NO_STEPS
    if row.status != FINISHED:
        return STOPPED_EARLY
    final = row.final_loss
    if final is None:
        return UNCLEAR
    if not math.isfinite(final):
        return DIVERGED
    if not alike or base is None or base.start_loss is None or base.final_loss is None:
        return UNCLEAR
    # A loss may fall far within its first steps.
    start, best = max(base.start_loss, base.first_loss or base.start_loss), base.final_loss
    gain = start - best
    noise = base.spread or 0.0
    if not math.isfinite(gain) or gain <= max(CHANGE * abs(start), noise):
        return UNCLEAR
    if final - start > max(gain, abs(start) / 2):
        return DIVERGED
    if row is base:
        return BASE
    share = (start - final) / gain
    stuck = row.skipped >= ALL * row.steps or (row.flushed or 0.0) >= ALL
    if share < HARDLY or stuck:
        return NOTHING
    near = best <= 0 or final <= TWICE * best
    return SAME if (share >= MOST_OF_IT and near) or final - best <= noise else LESS


def _why(row: Row) -> str:
    if row.error:
        return row.error
    worst = next((each for each in row.findings if each.severity in TROUBLING), None)
    return "" if worst is None else f"{worst.rule}: {worst.message}"
