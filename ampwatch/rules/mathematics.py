"""Which skips an overflow explains, and which come of NaN that mathematics made in backward.

A gradient that overflows holds inf, and often NaN as well (inf - inf), so NaN alone tells nothing:
it does where the search of backward has found an operation that made it out of finite values.
"""

from __future__ import annotations

from ampwatch.run import Run
from ampwatch.run.burst import Tally
from ampwatch.run.rhythm import Rhythm
from ampwatch.run.skip_causes import BACKWARD, OVERFLOW, UNKNOWN

ORDER_FACTS = ("backward-after-unscale", "backward-in-step", "update-between", "unscaled-twice")
"""Where calls come in the wrong order NaN follows from that."""


def by_mathematics(run: Run) -> bool:
    """Whether NaN in gradients beside a finite loss, at steps before any origin was found, is due
    to mathematics: as all that were found later are. Without any, whether NaN came at scales at
    which nothing overflows."""
    born = run.facts.get("nan-born")
    if born is not None and born.told("backward"):
        return True
    origin = run.facts.get("backward-origin")
    if origin is not None:
        return {details.get("kind") for _, details in origin.details} == {"nan"}
    return at_tiny_scales(run)


def at_tiny_scales(run: Run) -> bool:
    """Whether gradients held NaN beside a finite loss at scales at which nothing overflows, and
    neither a search of backward nor the order of calls says why."""
    if any(name in run.facts for name in ("stale-gradients", "backward-origin", *ORDER_FACTS)):
        return False
    return any(trends.gradients.nan_skipped is not None for trends in run.trends.values())


def overflow_causes(run: Run) -> frozenset[str]:
    """The causes of skips that an overflow may explain."""
    return frozenset({OVERFLOW} if by_mathematics(run) else {OVERFLOW, UNKNOWN})


def nan_causes(run: Run) -> frozenset[str]:
    """The causes of skips that mathematics in backward explains."""
    return BACKWARD - overflow_causes(run)


def overflows(run: Run, kind: str) -> Tally | None:
    """The bursts of a kind that an overflow may explain."""
    return run.bursts.tally(kind, overflow_causes(run))


def overflow_rhythm(run: Run) -> Rhythm | None:
    """Of skips that an overflow may explain."""
    return run.bursts.recent.rhythm(overflow_causes(run))
