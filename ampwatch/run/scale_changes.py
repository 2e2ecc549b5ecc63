"""Why the scale moved: it grew, it fell after a skip, or somebody set it."""

from __future__ import annotations

import math
from typing import NamedTuple

from ampwatch.record import ScalerInfo, StepRecord

GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
"""The factors of torch.amp.GradScaler where the run does not name its own."""
FIXED = ("static", "off")
"""Scalers that never change their scale."""


class ScaleChange(NamedTuple):
    """The scale moved between two steps, or did not where it should have."""

    kind: str
    """"grew", "fell" or "set"; "held" when it did not move although a step was skipped."""
    before: float
    after: float
    clean_steps: int
    """Steps without an overflow that came before it, as far as they were seen."""


class ScaleTrack:
    """Follows the scale from record to record.

    A skip is never read off the scale here; the scale is explained by the skips, which come from
    found_inf. What is neither growth nor the fall after a skip was set by hand, by
    ``update(new_scale)``, by loading a state, or belongs to a new scaler.
    """

    __slots__ = (
        "_held",
        "_step",
        "_tracker",
        "backoff_factor",
        "changed_at",
        "clean_before",
        "clean_steps",
        "growth_factor",
        "growth_interval",
        "origin",
        "scale",
        "skip_pending",
    )

    def __init__(self) -> None:
        self.scale: float | None = None
        self.origin = "start"
        """How the present scale came about: "start", "grew", "fell" or "set"."""
        self.clean_steps = 0
        """Steps without an overflow since the last skip or change of the scale."""
        self.clean_before = 0
        """The same at the latest skipped step, before it."""
        self.changed_at = -1
        """The first step at the present scale."""
        self.skip_pending = False
        """A step was skipped at the present scale, so the scale is about to fall."""
        self.growth_factor = GROWTH_FACTOR
        self.backoff_factor = BACKOFF_FACTOR
        self.growth_interval: int | None = None
        self._step = -1
        self._tracker: int | None = None
        self._held = False

    def configure(self, info: ScalerInfo) -> None:
        """Take the factors from the run instead of torch's defaults."""
        if info.growth_factor is not None:
            self.growth_factor = info.growth_factor
        if info.backoff_factor is not None:
            self.backoff_factor = info.backoff_factor
        if info.growth_interval is not None:
            self.growth_interval = info.growth_interval

    def see(self, record: StepRecord) -> ScaleChange | None:
        """Take the scale of one more record; says how it changed, if it did."""
        scale = record.scale
        if scale is None:
            return None
        if record.scaler == "off":
            # A switched-off scaler says 1; the scale itself waits unchanged for its return.
            self._step = record.step
            self.skip_pending = False
            return None
        before = self.scale
        change = None
        if before is None:
            self.scale = scale
        elif scale != before:
            kind = self._why(record, before, scale)
            change = ScaleChange(kind, before, scale, self.clean_steps)
            self.scale, self.origin, self.changed_at = scale, kind, record.step
            self.clean_steps = 0
            self.skip_pending = self._held = False
        elif self.skip_pending and record.step > self._step:
            # The update after a skip left the scale as it was: it does not adapt.
            self.skip_pending = False
            if not self._held:
                self._held = True
                change = ScaleChange("held", scale, scale, 0)
        if record.skipped:
            self.skip_pending = True
            self.clean_before = self.clean_steps
            self.clean_steps = 0
        elif (record.step > self._step or change is not None) and not self.skip_pending:
            # No skipped step is ever left out of the records, so a gap was clean.
            self.clean_steps += max(1, record.step - self._step) if self._step >= 0 else 1
        self._step = record.step
        self._tracker = record.growth_tracker
        return change

    def _why(self, record: StepRecord, before: float, after: float) -> str:
        if not (before > 0 and math.isfinite(before) and math.isfinite(after)):
            return "fell" if self.skip_pending and after < before else "set"
        ratio = after / before
        # Where records are missing, several updates lie between two of them.
        updates = max(1, record.step - self._step)
        if self.skip_pending:
            # At the bottom of float32 halving is no longer exact.
            near = ratio == self.backoff_factor or (after < 1e-37 and after < before)
            return "fell" if near or _power(ratio, self.backoff_factor, updates) else "set"
        if not _power(ratio, self.growth_factor, updates):
            return "set"
        if updates == 1 and self._tracker is not None:
            # torch puts the tracker back to 0 when the scale grows; a hand leaves it alone.
            if record.growth_tracker not in (0, None):
                return "set"
            if self.growth_interval is not None and self._tracker + 1 < self.growth_interval:
                return "set"
        return "grew"

    def expected(self, record: StepRecord) -> float | None:
        """The scale once the update after this record, the latest one, has been made."""
        scale = self.scale
        if scale is None or record.scaler in FIXED or self._held:
            return scale
        if self.skip_pending:
            return scale * self.backoff_factor
        tracker, interval = record.growth_tracker, self.growth_interval
        if tracker is not None and interval is not None and tracker + 1 == interval:
            return scale * self.growth_factor
        return scale

    def steps_until_growth(self, record: StepRecord) -> int | None:
        """How many more steps without an overflow the scale needs to grow."""
        tracker, interval = record.growth_tracker, self.growth_interval
        if tracker is None or interval is None or record.scaler in FIXED or interval < 1:
            return None
        if self.skip_pending:
            return interval
        left = interval - (tracker + 1)
        return left if left > 0 else interval


def _power(ratio: float, factor: float, most: int) -> bool:
    """Whether ``ratio`` is ``factor`` to the power 1 … ``most``, in float32 accuracy."""
    if not (0 < ratio < math.inf and 0 < factor < math.inf) or (ratio > 1) != (factor > 1):
        return False
    if factor == 1:
        return False
    power = math.log(ratio) / math.log(factor)
    whole = round(power)
    return 1 <= whole <= most and math.isclose(power, whole, rel_tol=1e-5)
