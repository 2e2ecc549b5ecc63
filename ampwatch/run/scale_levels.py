"""At which scales steps were taken, and whether the scale adapts at all."""

from __future__ import annotations

from ampwatch.record import StepRecord
from ampwatch.run.scale_changes import ScaleChange
from ampwatch.run.skip_causes import LOSS, OVERFLOW
from ampwatch.run.spans import Span, extend, note

FATAL_SCALE = 2.0**-128
"""float32 ends below 2^128, so from here on 1 / scale is inf in it."""
RUNAWAY_SCALE = 2.0**30
"""float16's smallest number times this is 64: no gradient needs more. torch's issue 98828 had to
keep the scale from becoming inf."""
LOST_SCALE = 2.0**64
"""A level as high as this is none: what float16 could not hold without it is below 2^-80."""
STILL_STEPS = 20
"""A growth tracker that has not moved over so many taken steps: this scale does not adapt."""


class ScaleLevels:
    """Follows the scale where steps are taken."""

    __slots__ = (
        "_cause", "_last", "_limit", "_skipped_at", "below_one", "fatal", "grown_step", "grown_to",
        "held_skips", "highest", "lowest_taken", "overflowed", "still",
    )  # fmt: skip

    def __init__(self) -> None:
        self.below_one: dict[str, Span] = {}
        """Steps taken at a scale below 1, by the cause of the skip before, which has brought it
        down: it is not always the range of the gradients."""
        self.lowest_taken: float | None = None
        self.highest: float | None = None
        """The largest scale at which a step was taken."""
        self.overflowed: float | None = None
        """The scale of the latest skip beside a finite loss."""
        self.grown_to: float | None = None
        """The scale of the latest growth, until it is set or an overflow has shown its level."""
        self.grown_step = 0
        self.still = 0
        """Taken steps in a row over which the growth tracker stood still."""
        self.held_skips: Span | None = None
        """Steps skipped at a scale that did not react."""
        self.fatal: Span | None = None
        """Steps that were taken at a scale whose reciprocal is inf in float32."""
        self._last: StepRecord | None = None
        self._skipped_at = -1
        self._limit = 0.0
        self._cause = OVERFLOW
        """Of the latest skip."""

    def changed(self, step: int, change: ScaleChange) -> None:
        if change.kind == "grew" and change.after > self._limit:
            self.grown_to, self.grown_step = change.after, step
        elif change.kind == "set":
            self.grown_to, self._limit = None, 0.0
        elif change.kind == "fell" and change.before < LOST_SCALE:
            # An overflow has shown the level; growth tries it again, and the next one above it.
            self.grown_to, self._limit = None, max(self._limit, 2 * change.before)

    def see(self, record: StepRecord, cause: str = OVERFLOW) -> None:
        """One more step, and where it was skipped the cause of that."""
        scale = record.scale
        last, self._last = self._last, record
        if scale is None or record.scaler == "off":
            return
        same = last is not None and last.scale == scale
        if same and last is not None and last.skipped and last.step < record.step:
            self.held_skips = extend(self.held_skips, last.step)
        if record.skipped:
            self._skipped_at = record.step
            self._cause = cause
            if cause != LOSS:
                self.overflowed = scale
            return
        if self.highest is None or scale > self.highest:
            self.highest = scale
        if same and last is not None and last.step < record.step:
            stood = last.growth_tracker is not None and last.growth_tracker == record.growth_tracker
            self.still = self.still + 1 if stood or record.scaler == "static" else 0
        if scale <= FATAL_SCALE:
            self.fatal = extend(self.fatal, record.step)
        # Beside the skips of another optimizer the scale has not settled, it is falling.
        if 0 < scale < 1 and record.step > self._skipped_at + 1:
            note(self.below_one, self._cause, record.step)
            if self.lowest_taken is None or scale < self.lowest_taken:
                self.lowest_taken = scale

    @property
    def static(self) -> bool:
        """Whether the scale does not adapt."""
        return self.still >= STILL_STEPS or self.held_skips is not None
