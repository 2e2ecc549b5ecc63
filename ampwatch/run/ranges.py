"""How gradients fit a number format: what is lost at a scale, and which scales lose nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ampwatch.formats import Format
from ampwatch.record import ActivationStats, Exponents, TensorStats


@dataclass(frozen=True, slots=True)
class Spread:
    """True magnitudes over the powers of two, of one gradient or of several together.

    ``counts[k]`` values lie from 2^(first + k) up to 2^(first + k + 1); those of a sampled gradient
    are scaled up to its size, so that each gradient weighs what it has in values.
    """

    first: float
    counts: tuple[float, ...]
    zeros: float
    nonfinite: int
    """inf and NaN, counted exactly."""
    size: int
    seen: int
    """How many of the ``size`` values were looked at."""
    largest: float | None
    """The largest magnitude, exact; None where inf or NaN hide it, or all is 0."""
    tensors: int

    @property
    def usual(self) -> float:
        """How many values are neither 0 nor inf nor NaN."""
        return sum(self.counts)

    def below(self, power: float, doublings: float = 0.0) -> float:
        """How many usual values are below 2^power once they have been doubled so often.

        Exact where the edge falls between two bins; within a bin, in proportion of its width.
        """
        edge = power - doublings - self.first
        if edge <= 0:
            return 0.0
        whole = math.floor(edge)
        total = sum(self.counts[:whole])
        if whole < len(self.counts):
            total += self.counts[whole] * (edge - whole)
        return total


@dataclass(frozen=True, slots=True)
class Fit:
    """What a format makes of gradients; shares are of the values that are neither 0, inf nor NaN.

    From parameter gradients alone the headroom is an upper bound, and ``highest`` as well:
    activation gradients, which backward computes on the way, can be larger.
    """

    flushed: float
    """Becomes 0 at the scale in force."""
    flushed_unscaled: float
    """Would become 0 without scaling."""
    subnormal: float
    """Keeps only some of its bits at the scale in force."""
    overflowing: float
    """Is beyond the largest value at the scale in force."""
    headroom: float | None
    """How many more doublings of the scale the largest value can take."""
    lowest: int | None
    """From 2^lowest on every value reaches the smallest subnormal."""
    highest: int | None
    """Up to 2^highest no value exceeds the largest of the format."""

    @property
    def lossless(self) -> bool | None:
        """Whether there is a scale that loses nothing; None where that is not known."""
        if self.lowest is None or self.highest is None:
            return None
        return self.lowest <= self.highest


def spread_of(stats: TensorStats, name: str | None = None) -> Spread | None:
    """The magnitudes of one parameter's gradient, or of all; None where none were measured."""
    if not stats.exponents:
        return None
    places = [place for place, each in enumerate(stats.name) if name in (None, each)]
    if not places:
        return None
    return _together(
        [stats.exponents[place] for place in places],
        [stats.size[place] if stats.size else 0 for place in places],
        [stats.nonfinite[place] for place in places],
        [stats.max[place] for place in places],
    )


NARROW = ("float16", "bfloat16")
"""What autocast lowers to, the one that ends first in front."""


def flow_of(stats: ActivationStats, module: str | None = None) -> tuple[Spread | None, str]:
    """The magnitudes of the gradients that flow between modules, and the dtype they have.

    Args:
        module: whose output is wanted. For the whole model all gradients of the narrowest dtype
            are taken together: the others, around the loss, need not fit it.
    """
    if not stats.exponents:
        return None, ""
    rows = range(len(stats.name))
    if module is None:
        dtype = next((each for each in NARROW if each in stats.dtype), None)
        places = [place for place in rows if dtype in (None, stats.dtype[place])]
    else:
        places = [p for p in rows if stats.name[p] == module and not stats.after[p]]
    if not places:
        return None, ""
    dtypes = dict.fromkeys(stats.dtype[place] for place in places)
    spread = _together(
        [stats.exponents[place] for place in places],
        [stats.size[place] for place in places],
        [stats.nonfinite[place] for place in places],
        [stats.max[place] for place in places],
    )
    return spread, ", ".join(dtypes)


def _together(
    rows: Sequence[Exponents],
    sizes: Sequence[int],
    nonfinite: Sequence[int],
    maxima: Sequence[float],
) -> Spread:
    filled = [row for row in rows if row.counts]
    # One scale was divided out of all of them: they lie a whole number of bins apart.
    first = min((row.first for row in filled), default=0.0)
    bins = max((round(row.first - first) + len(row.counts) for row in filled), default=0)
    counts = [0.0] * bins
    zeros = 0.0
    whole = [max(size, row.seen) for row, size in zip(rows, sizes, strict=True)]
    for row, size in zip(rows, whole, strict=True):
        weight = size / row.seen if row.seen else 0.0
        zeros += row.zeros * weight
        start = round(row.first - first)
        for place, number in enumerate(row.counts, start):
            counts[place] += number * weight
    return Spread(
        first=first,
        counts=tuple(counts),
        zeros=zeros,
        nonfinite=sum(nonfinite),
        size=sum(whole),
        seen=sum(row.seen for row in rows),
        largest=_largest(maxima),
        tensors=len(rows),
    )


def _largest(maxima: Iterable[float]) -> float | None:
    largest = 0.0
    for value in maxima:
        if not math.isfinite(value):
            return None
        largest = max(largest, value)
    return largest or None


def doublings_of(scale: float | None) -> float:
    """log2 of a scale; 0 where there is none that could be told."""
    return math.log2(scale) if scale is not None and 0 < scale < math.inf else 0.0


def fit(spread: Spread, form: Format, scale: float | None) -> Fit:
    """How the magnitudes fit ``form`` when the loss is multiplied by ``scale``."""
    usual = spread.usual
    if not usual:
        return Fit(0.0, 0.0, 0.0, 0.0, None, None, None)
    doublings = doublings_of(scale)
    top = math.log2(form.largest)
    flushed = spread.below(form.flushed, doublings)
    headroom, highest = None, None
    if spread.largest is not None:
        headroom = top - math.log2(spread.largest) - doublings
        highest = _most_doublings(spread.largest, form.largest)
    if headroom is not None and headroom >= 0:
        overflowing = 0.0  # exact, where a bin would only tell in proportion
    else:
        overflowing = usual - spread.below(top, doublings)
    return Fit(
        flushed=flushed / usual,
        flushed_unscaled=spread.below(form.flushed) / usual,
        subnormal=(spread.below(form.normal, doublings) - flushed) / usual,
        overflowing=max(overflowing, 0.0) / usual,
        headroom=headroom,
        lowest=math.ceil(form.lowest - spread.first),
        highest=highest,
    )


def _most_doublings(value: float, limit: float) -> int:
    """The largest k with value · 2^k <= limit, without rounding and whatever their size."""
    mantissa, exponent = math.frexp(value)
    most, power = math.frexp(limit)
    return power - exponent - (mantissa > most)
