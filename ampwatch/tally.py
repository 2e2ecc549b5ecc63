"""The few figures a hook keeps for ``print(watch.summary())``, wherever else records go."""

from __future__ import annotations

import math
from collections import Counter

from ampwatch.record import StepRecord

MOST_ORIGINS = 1000


class Tally:
    """A running count over step records."""

    def __init__(self) -> None:
        self.records = 0
        self.skipped = 0
        self.nonfinite = 0
        self.origins: Counter[str] = Counter()
        self.last: StepRecord | None = None
        self.after_move = False
        """Whether the latest skip came at a scale that the step before it had not."""
        self._overhead = 0.0

    def add(self, record: StepRecord) -> None:
        self.records += 1
        if record.overhead is not None:
            self._overhead += record.overhead
        if record.skipped:
            self.skipped += 1
            self.after_move = self.last is None or record.scale != self.last.scale
        self.last = record
        if record.nonfinite_tensors or (record.loss is not None and not math.isfinite(record.loss)):
            self.nonfinite += 1
            if record.origin is not None and (
                record.origin in self.origins or len(self.origins) < MOST_ORIGINS
            ):
                self.origins[record.origin] += 1

    def text(self) -> str:
        """A few plain lines."""
        last = self.last
        if last is None:
            return "ampwatch saw no optimizer step."
        lines = [f"ampwatch saw {last.step + 1} steps in {last.dtype or 'an unknown dtype'}."]
        if last.scaler is None:
            lines.append("no GradScaler")
        elif last.scaler == "off":
            lines.append("the scaler is off")
        else:
            share = self.skipped / self.records
            scale = "" if last.scale is None else f", scale {last.scale:g}"
            lines.append(f"scaler {last.scaler}{scale}, {self.skipped} skipped ({share:.1%})")
        if self.nonfinite:
            lines.append(f"{self.nonfinite} steps with inf or NaN in the loss or the gradients")
        if self.origins:
            name, count = self.origins.most_common(1)[0]
            lines.append(f"they began in {name} most often ({count} times)")
        if last.loss is not None:
            lines.append(f"last loss {last.loss:g}")
        if last.grad_norm is not None:
            lines.append(f"last gradient norm {last.grad_norm:g}")
        lines.append(f"overhead {self._overhead / self.records:.1%} of the step time")
        return "\n  ".join(lines)
