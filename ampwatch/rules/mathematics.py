"""Which skips an overflow explains, and which come of NaN that mathematics made in backward.

A gradient that overflows holds inf, and often NaN as well (inf - inf), so NaN alone tells nothing:
it does where the search of backward has found an operation that made it out of finite values.
"""

from __future__ import annotations

from ampwatch.run import Run
from ampwatch.run.burst import Tally
from ampwatch.run.bursts import Skips
from ampwatch.run.rhythm import Rhythm

ORDER_FACTS = ("backward-after-unscale", "backward-in-step", "update-between", "unscaled-twice")
"""Where calls come in the wrong order NaN follows from that."""


def by_mathematics(run: Run) -> bool:
    """Whether NaN in gradients beside a finite loss was made by mathematics, wherever its origin
    was found; without any origin, whether it came at scales at which nothing overflows."""
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


def of_overflow(run: Run) -> Skips:
    """Which skips beside a finite loss an overflow may explain."""
    return "overflow" if by_mathematics(run) else "gradients"


def overflows(run: Run, kind: str) -> Tally | None:
    """The bursts of a kind that an overflow may explain."""
    return run.bursts.tally(kind, nan=not by_mathematics(run))


def overflow_rhythm(run: Run) -> Rhythm | None:
    """Of skips that an overflow may explain."""
    return run.bursts.rhythm(of_overflow(run))
