"""What detail steps show over a run: gradients that are always 0, flushed to 0, or fading away."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ampwatch.record import TensorStats
from ampwatch.run.spans import Span

FP16_NORMAL = 2.0**-14
"""Below it float16 loses digits, and at 2^-24 its numbers end."""
FLUSHED_ZEROS = 0.5
"""So large a part of a gradient is 0 where rounding to 0 is what happened to it."""
FADED = 1e-6
"""Root mean square of the first layer's gradient against the largest one of any layer: as float32
adds up, the one is nothing beside the other."""
MOST_TENSORS = 10_000
FIRST_LAYER = 2
"""A layer is a weight and a bias."""
FEWEST_LAYERS = 6


@dataclass(slots=True)
class Level:
    """One parameter's gradient over the detail steps."""

    seen: int = 0
    dead: int = 0
    """Detail steps in a row at which all of it was 0 and nothing says that it was flushed."""
    first: int = 0
    last: int = 0


class GradientLevels:
    """Kept from one detail step to the next."""

    __slots__ = ("details", "fading", "fading_ratio", "flushed", "headroom", "levels", "share")

    def __init__(self) -> None:
        self.levels: dict[str, Level] = {}
        self.flushed: Span | None = None
        """Detail steps at which a large share of all values was flushed to 0."""
        self.share = 0.0
        """The largest such share."""
        self.headroom: float | None = None
        """Doublings that the scale had left then."""
        self.fading: Span | None = None
        self.fading_ratio = 1.0
        self.details = 0

    def see(self, stats: TensorStats, dtype: str | None) -> None:
        """One more detail step."""
        if not stats.size or any(stats.nonfinite):
            return  # an overflow leaves inf, NaN and zeros behind that say nothing of the level
        self.details += 1
        scale = stats.scale or 1.0
        flushed = _flushed(stats, scale) if dtype == "float16" else [False] * len(stats.name)
        self._count(stats, flushed)
        values = sum(stats.size)
        zeros = sum(z for z, bad in zip(stats.zeros, flushed, strict=True) if bad)
        if values and zeros >= FLUSHED_ZEROS * values / 2:
            share = zeros / values
            if self.flushed is None:
                self.flushed = Span(1, stats.step, stats.step)
            else:
                self.flushed.count += 1
                self.flushed.last = stats.step
            if share >= self.share:
                self.share = share
                largest = max(stats.max) * scale
                self.headroom = math.log2(65504.0 / largest) if largest > 0 else None
        self._fade(stats)

    def _count(self, stats: TensorStats, flushed: list[bool]) -> None:
        for place, name in enumerate(stats.name):
            level = self.levels.get(name)
            if level is None:
                if len(self.levels) >= MOST_TENSORS:
                    return
                level = self.levels[name] = Level(first=stats.step)
            level.seen += 1
            if stats.size[place] and stats.zeros[place] == stats.size[place] and not flushed[place]:
                if not level.dead:
                    level.first = stats.step
                level.dead += 1
                level.last = stats.step
            else:
                level.dead = 0

    def _fade(self, stats: TensorStats) -> None:
        sizes = [
            norm / math.sqrt(size) if size else 0.0
            for norm, size in zip(stats.norm, stats.size, strict=True)
        ]
        first = max(sizes[-FIRST_LAYER:], default=0.0)
        largest = max(sizes, default=0.0)
        if len(sizes) >= FEWEST_LAYERS and 0 < first < FADED * largest:
            if self.fading is None:
                self.fading = Span(1, stats.step, stats.step)
            else:
                self.fading.count += 1
                self.fading.last = stats.step
            self.fading_ratio = min(self.fading_ratio, first / largest)


def _flushed(stats: TensorStats, scale: float) -> list[bool]:
    """For each gradient, whether its zeros are values that were too small for float16.

    It is so where what is left of it is subnormal in float16; where nothing is left, the nearest
    gradient towards the loss that has something left decides: what reached it came through there.
    """
    result = []
    near = math.inf
    for size, zeros, largest in zip(stats.size, stats.zeros, stats.max, strict=True):
        if largest > 0:
            near = largest * scale
        result.append(bool(size) and zeros >= FLUSHED_ZEROS * size and near < FP16_NORMAL)
    return result
