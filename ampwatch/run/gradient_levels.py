"""What detail steps show over a run: gradients that are always 0, flushed to 0, or fading away."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ampwatch.formats import FLOAT16
from ampwatch.record import StepRecord, TensorStats
from ampwatch.run.hand_clips import ValueClip
from ampwatch.run.spans import Span, extend

FP16_NORMAL = 2.0**FLOAT16.normal
"""Below it float16 loses digits, and at 2^-24 its numbers end."""
SHARES = (0.05, 0.25, 0.5)
"""Of all gradient values that are flushed to 0, as far as rules ask for them."""
FLUSHED_SHARE = 0.01
"""Smaller shares are lost in ordinary training too, and do no harm."""
LOW_SCALE = 2.0**15
"""What is flushed at a scale as large as this is below 2^-40, so hardly a gradient at all: where
all of it is 0 even there, it is dead."""
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

    __slots__ = (
        "_before", "ceiling", "details", "fading", "fading_ratio", "fading_tensor",
        "flushed", "headroom", "last_step", "levels", "share", "vanished",
    )  # fmt: skip

    def __init__(self) -> None:
        self.levels: dict[str, Level] = {}
        self.ceiling = ValueClip()
        """The number at which scaled gradients end, where somebody has clipped them."""
        self.flushed: dict[float, Span] = {}
        """Detail steps at which at least this share of all values was flushed to 0."""
        self._before: dict[float, int] = {}
        """How many detail steps came before the first of them."""
        self.share = 0.0
        """The largest share flushed."""
        self.headroom: float | None = None
        """Doublings that the scale had left then."""
        self.vanished: Span | None = None
        """Detail steps at which all of it was 0 beside a loss that was not."""
        self.fading: Span | None = None
        self.fading_ratio = 1.0
        self.fading_tensor: str | None = None
        self.details = 0
        """Detail steps without inf and NaN."""
        self.last_step = -1

    def see(self, stats: TensorStats, record: StepRecord | None) -> None:
        """One more detail step, and the record of that step."""
        loss = None if record is None else record.loss
        if not stats.size or any(stats.nonfinite) or not math.isfinite(loss or 0.0):
            return  # an overflow leaves inf, NaN and zeros behind that say nothing of the level
        self.details += stats.step != self.last_step
        self.last_step = stats.step
        scale = stats.scale or 1.0
        half = record is not None and (
            record.dtype == "float16" or "fp16-gradients" in record.facts
        )
        flushed = _flushed(stats, scale) if half else [False] * len(stats.name)
        if half and _silent(stats, scale, loss):
            flushed = [True] * len(stats.name)
            self.vanished = extend(self.vanished, stats.step)
        self._count(stats, flushed)
        values = sum(stats.size)
        zeros = sum(z for z, bad in zip(stats.zeros, flushed, strict=True) if bad)
        share = zeros / values if values else 0.0
        for least in SHARES:
            if share >= least:
                self._before.setdefault(least, self.details - 1)
                self.flushed[least] = extend(self.flushed.get(least), stats.step)
        if share >= max(self.share, FLUSHED_SHARE):
            self.share = share
            largest = max(stats.max) * scale
            self.headroom = math.log2(FLOAT16.largest / largest) if largest > 0 else None
        self.ceiling.see(stats)
        self._fade(stats)

    def lasting(self, share: float) -> bool:
        """Whether so much was flushed at half of the detail steps since the first such one: how
        many there are must not decide, as a fast machine has more of them."""
        span = self.flushed.get(share)
        return span is not None and 2 * span.count >= self.details - self._before[share]

    def _count(self, stats: TensorStats, flushed: list[bool]) -> None:
        for place, name in enumerate(stats.name):
            level = self.levels.get(name)
            if level is None:
                if len(self.levels) >= MOST_TENSORS:
                    return
                level = self.levels[name] = Level(first=stats.step)
            level.seen += 1
            empty = stats.size[place] and stats.zeros[place] == stats.size[place]
            if empty and not flushed[place] and not _layer_learns(stats, name):
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
        # In float16 what fades ends in zeros: then the last layer counts that has values left.
        end = len(sizes)
        while end > FIRST_LAYER and not any(sizes[end - FIRST_LAYER : end]):
            end -= FIRST_LAYER
        first = max(sizes[max(end - FIRST_LAYER, 0) : end], default=0.0)
        largest = max(sizes, default=0.0)
        if len(sizes) >= FEWEST_LAYERS and 0 < first < FADED * largest:
            self.fading = extend(self.fading, stats.step)
            self.fading_tensor = stats.name[-1]
            self.fading_ratio = min(self.fading_ratio, first / largest)


def _silent(stats: TensorStats, scale: float, loss: float | None) -> bool:
    """Whether nothing came back from a loss that is there, at a scale that does not say much."""
    return not any(stats.max) and scale < LOW_SCALE and bool(loss) and math.isfinite(loss or 0.0)


def _layer_learns(stats: TensorStats, name: str) -> bool:
    """Whether a bias belongs to a layer whose weight has a gradient. Then its own is exactly 0
    because what comes back to it cancels: in front of a normalisation, or where the loss is a
    difference of means."""
    layer, dot, last = name.rpartition(".")
    if last != "bias":
        return False
    weight = f"{layer}{dot}weight"
    return any(m > 0 for each, m in zip(stats.name, stats.max, strict=True) if each == weight)


def _flushed(stats: TensorStats, scale: float) -> list[bool]:
    """For each gradient, whether its zeros are values that were too small for float16.

    It is so where what is left of it, times the scale, is subnormal in float16 (below 2^-14); where
    nothing is left, the nearest gradient towards the loss that has something left decides: what
    reached it came through there.
    """
    result = []
    near = math.inf
    for size, zeros, largest in zip(stats.size, stats.zeros, stats.max, strict=True):
        if largest > 0:
            near = largest * scale
        result.append(bool(size) and bool(zeros) and near < FP16_NORMAL)
    return result
