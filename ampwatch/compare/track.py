"""What a comparison keeps of one run's records: losses, step times, memory, zeros."""

from __future__ import annotations

from array import array
from statistics import median

from ampwatch import controls
from ampwatch.record import Notice, Record, RunInfo, StepRecord, TensorStats
from ampwatch.record.memory import PEAK_BYTES, SAVED_BYTES

FEWEST_STEPS = 3
"""Of fewer step times there is no median worth the name."""


class Track:
    """Takes the records of one run in, in their order.

    A step's time is the time from its record to the next one's, without what watching took
    (``overhead``). The first step of a block has the pause before it in that and does not count.
    """

    def __init__(self) -> None:
        self.info: RunInfo | None = None
        self.last: StepRecord | None = None
        self.steps = 0
        self.skipped = 0
        self.losses = array("d")
        """One a step of the first optimizer that has a loss, skipped steps among them."""
        self.loss_steps = array("q")
        self.blocks: list[float | None] = []
        """Seconds a step, block by block; None for a block that was cut short."""
        self.saved_bytes: float | None = None
        self.peak_bytes: float | None = None
        self.zeros: dict[int, tuple[int, int]] = {}
        """At each detail step without inf and NaN: gradient values that are 0, and all."""
        self.waits = False
        """Whether it has taken all the steps it was let take."""
        self._bad_details: set[int] = set()
        self._optimizer: str | None = None
        self._loss_of: str | None = None
        self._skipped_step = -1
        self._block: list[float] | None = None
        self._asked = 0
        self._before: float | None = None

    @property
    def device(self) -> str | None:
        return None if self.info is None else self.info.device

    def begin_block(self, steps: int) -> None:
        """So many steps are let go on now; they are timed."""
        self.waits = False
        self._block, self._asked, self._before = [], steps, None

    def add(self, record: Record) -> None:
        """One more record."""
        if isinstance(record, StepRecord):
            self._step(record)
        elif isinstance(record, TensorStats):
            self._zeros(record)
        elif isinstance(record, RunInfo):
            self.info = record
        elif isinstance(record, Notice) and record.knob == controls.STEP.name:
            self.waits = True
            if isinstance(record.value, (int, float)):
                self._end_block(float(record.value))

    def ended(self) -> None:
        """The run is over: a block that has not come to its end is worth nothing."""
        if self._block is not None:
            self._block = None
            self.blocks.append(None)

    def _step(self, record: StepRecord) -> None:
        first = self.last is None
        self.last = record
        self.steps = record.step + 1
        if record.skipped and record.step != self._skipped_step:
            self._skipped_step = record.step
            self.skipped += 1
        for name, value in record.metrics.items():
            if name == SAVED_BYTES:
                self.saved_bytes = max(value, self.saved_bytes or 0.0)
            elif name == PEAK_BYTES:
                self.peak_bytes = max(value, self.peak_bytes or 0.0)
        if record.loss is not None:
            if not self.losses:
                self._loss_of = record.optimizer
            if record.optimizer == self._loss_of:
                self.losses.append(record.loss)
                self.loss_steps.append(record.step)
        if first:
            self._optimizer = record.optimizer
        if record.optimizer == self._optimizer:
            if self._block is not None and self._before is not None:
                seconds = record.time - self._before
                self._block.append(seconds * (1.0 - (record.overhead or 0.0)))
            self._before = record.time

    def _end_block(self, seconds: float) -> None:
        if self._block is None:
            return  # the warm-up
        times, self._block = self._block, None
        if self.device is not None and self.device != "cpu":
            # The loop runs ahead of the device: only the whole block, waited for, tells.
            self.blocks.append(seconds / max(self._asked, 1))
        else:
            self.blocks.append(median(times) if len(times) >= FEWEST_STEPS else None)

    def _zeros(self, stats: TensorStats) -> None:
        step = stats.step
        if any(stats.nonfinite) or step in self._bad_details:
            # What an overflow leaves behind says nothing of what was flushed.
            self._bad_details.add(step)
            self.zeros.pop(step, None)
        elif stats.size:
            zeros, size = self.zeros.get(step, (0, 0))
            self.zeros[step] = (zeros + sum(stats.zeros), size + sum(stats.size))
