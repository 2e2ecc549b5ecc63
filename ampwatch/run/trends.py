"""What the numbers of a run do over its steps, in fixed memory, as far as rules ask for it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

from ampwatch.record import StepRecord
from ampwatch.run.hand_clips import NormClip
from ampwatch.run.spans import Span, extend

WINDOW = 50
"""The recent past that a value is compared with."""
FEWEST = 20
"""Before so many values there is no past worth the name."""
SPIKE_FACTOR = 10.0
"""A loss that is ten times the median of the last fifty is no noise of small batches."""
SPIKE_SPREADS = 8.0
"""And it must be far outside what the loss does anyway: eight times its own spread (median
absolute deviation, in the logarithm). Eight are beyond 5 sigma of a normal distribution."""
SPIKE_TAIL = 2.5
"""And so many times further up, in the logarithm, than any of the last fifty: losses of small
batches can have long tails, whose median spread says nothing of them."""
ANEW_STEPS = 20
ANEW_FACTOR = 4.0
ANEW_MISSES = 2
"""A loss that leaps to where the run began, and then falls as it fell there, within this factor at
all but so few of the next steps, has been given a new task: it is learned like the first one."""
EXPLODE_FACTOR = 100.0
"""Gradients a hundred times the median of an earlier window, step after step."""
EXPLODE_STEPS = 3
EXPLODED_NORM = 10.0
"""Below this a norm is not large, whatever it grew from."""
TINY_SCALE = 2.0**-16
"""Times this, gradients of 2^32 still fit float16."""
LONG_WINDOW = 100
MOST_WINDOWS = 8
"""Steps with one loss, with two, and so on."""
KEPT_SPIKES = 64
FEWEST_NORMS = 10


@dataclass(slots=True)
class Peak:
    """Something that stood out, with the worst of it."""

    span: Span
    value: float
    usual: float
    step: int


def _further(peak: Peak | None, step: int, value: float, usual: float) -> Peak:
    if peak is None:
        return Peak(Span(1, step, step), value, usual, step)
    peak.span = extend(peak.span, step)
    if value > peak.value:
        peak.value, peak.usual, peak.step = value, usual, step
    return peak


@dataclass(slots=True)
class _Leap:
    """A loss far above the level before it, and how like the first steps those after it are."""

    step: int
    loss: float
    usual: float
    seen: int = 0
    misses: int = 0


class LossTrend:
    """Where the loss leapt, and where it was inf or NaN.

    Steps with equally many losses are compared: a second loss at each tenth step is no spike.
    """

    __slots__ = ("_beginning", "_leap", "_windows", "first_bad", "high", "infinite", "nan", "spike")

    def __init__(self) -> None:
        self._windows: dict[int | None, deque[float]] = {}
        self._beginning: list[float] = []
        """The first losses, in the logarithm."""
        self._leap: _Leap | None = None
        self.spike: Peak | None = None
        self.high: deque[int] = deque(maxlen=KEPT_SPIKES)
        """The latest steps with a loss far above the median, whatever its tail."""
        self.nan: Span | None = None
        self.infinite: Span | None = None
        self.first_bad: float | None = None
        """The first loss that was not finite."""

    def reset(self) -> None:
        """A knob was turned: what follows is not comparable."""
        self._windows.clear()
        self._beginning.clear()
        self._leap = None

    def usual(self, losses: int | None) -> float | None:
        """The level of the loss at steps with so many losses."""
        logs = self._windows.get(losses)
        return math.exp(median(logs)) if logs else None

    def see(self, step: int, loss: float, losses: int | None) -> None:
        if loss - loss != 0:
            if self.first_bad is None:
                self.first_bad = loss
            if loss != loss:
                self.nan = extend(self.nan, step)
            else:
                self.infinite = extend(self.infinite, step)
            return
        logs = self._windows.get(losses)
        if logs is None:
            if len(self._windows) >= MOST_WINDOWS:
                return
            logs = self._windows[losses] = deque(maxlen=WINDOW)
        if loss <= 0:
            logs.clear()  # a loss of either sign has no ratio
            return
        value = math.log(loss)
        if len(self._beginning) < ANEW_STEPS:
            self._beginning.append(value)
        elif self._leap is not None:
            self._follow(self._leap, value)
        if len(logs) >= FEWEST and value > logs[-1] + 1.0:  # the median is worth its cost only here
            middle = median(logs)
            spread = median([abs(each - middle) for each in logs])
            if value - middle > max(math.log(SPIKE_FACTOR), SPIKE_SPREADS * spread):
                self.high.append(step)
                if value - middle > SPIKE_TAIL * (max(logs) - middle):
                    self._leapt(_Leap(step, loss, math.exp(middle)), value)
        logs.append(value)

    def _leapt(self, leap: _Leap, value: float) -> None:
        """A spike, unless the run begins anew here, which the next steps will show."""
        if self._leap is None and abs(value - self._beginning[0]) <= math.log(ANEW_FACTOR):
            self._leap = leap
        else:
            self.spike = _further(self.spike, leap.step, leap.loss, leap.usual)

    def _follow(self, leap: _Leap, value: float) -> None:
        leap.seen += 1
        if leap.seen == ANEW_STEPS:
            self._leap = None
        elif abs(value - self._beginning[leap.seen]) > math.log(ANEW_FACTOR):
            leap.misses += 1
            if leap.misses > ANEW_MISSES:
                self._leap = None
                self.spike = _further(self.spike, leap.step, leap.loss, leap.usual)


class NormTrend:
    """Where gradients grew beyond what they were."""

    __slots__ = ("_high", "_logs", "explosion")

    def __init__(self) -> None:
        self._logs: deque[float] = deque(maxlen=LONG_WINDOW)
        self._high = 0
        self.explosion: Peak | None = None

    def reset(self) -> None:
        self._logs.clear()
        self._high = 0

    def see(self, step: int, norm: float) -> None:
        if norm - norm != 0 or norm <= 0:
            return  # inf in the norm of a skipped step belongs to the skip
        logs = self._logs
        value = math.log10(norm)
        if len(logs) >= FEWEST_NORMS and norm >= EXPLODED_NORM and value - logs[0] > 1.0:
            early = list(logs)[: max(len(logs) // 2, FEWEST_NORMS)]
            usual = median(early)
            if value - usual > math.log10(EXPLODE_FACTOR):
                self._high += 1
                if self._high >= EXPLODE_STEPS:
                    self.explosion = _further(self.explosion, step, norm, 10.0**usual)
            else:
                self._high = 0
        else:
            self._high = 0
        logs.append(value)


@dataclass(slots=True)
class RateTrend:
    """How the learning rate moved, over steps that were taken and over steps that were not."""

    moved_after_skip: Span | None = None
    still_after_skip: int = 0
    in_a_row: int = 0
    most_in_a_row: int = 0

    def see(self, before: StepRecord, record: StepRecord) -> None:
        if before.lr is None or record.lr is None or record.step != before.step + 1:
            return
        moved = record.lr != before.lr
        self.in_a_row = self.in_a_row + 1 if moved else 0
        self.most_in_a_row = max(self.most_in_a_row, self.in_a_row)
        if before.skipped:
            if moved:
                self.moved_after_skip = extend(self.moved_after_skip, before.step)
            else:
                self.still_after_skip += 1


@dataclass(slots=True)
class GradientTrend:
    """inf and NaN in the gradients beside a finite loss."""

    nan_taken: Span | None = None
    """Steps that were taken although the gradients held NaN."""
    nan_skipped: Span | None = None
    """Steps that were skipped for NaN at a scale at which nothing overflows."""
    tensor: str | None = None


@dataclass(slots=True)
class Trends:
    """Of one optimizer."""

    loss: LossTrend = field(default_factory=LossTrend)
    norm: NormTrend = field(default_factory=NormTrend)
    rate: RateTrend = field(default_factory=RateTrend)
    gradients: GradientTrend = field(default_factory=GradientTrend)
    clip: NormClip = field(default_factory=NormClip)

    def see(self, before: StepRecord | None, record: StepRecord) -> None:
        if record.loss is not None:
            self.loss.see(record.step, record.loss, record.losses)
        if record.grad_norm is not None:
            self.norm.see(record.step, record.grad_norm)
            self.clip.see(record)
            if record.grad_norm != record.grad_norm:
                self._bad(record)
        if before is not None:
            self.rate.see(before, record)

    def _bad(self, record: StepRecord) -> None:
        finite = record.loss is not None and record.loss - record.loss == 0
        seen = self.gradients
        if not finite:
            return
        if record.scaler in (None, "off"):
            seen.nan_taken = extend(seen.nan_taken, record.step)
        elif record.skipped and record.scale is not None and record.scale < TINY_SCALE:
            seen.nan_skipped = extend(seen.nan_skipped, record.step)
        else:
            return
        seen.tensor = seen.tensor or record.origin

    def reset(self) -> None:
        """A knob was turned."""
        self.loss.reset()
        self.norm.reset()
