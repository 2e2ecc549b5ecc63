"""Whether all runs started alike: only then their losses can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ampwatch.compare.figures import Row
from ampwatch.compare.variants import BASELINE

ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""The unit roundoff of each format: half of the distance from 1 to the next number."""
ROUNDINGS = 32.0
"""So many of them may come together on the way to a loss."""


def start_note(rows: Sequence[Row]) -> str | None:
    """What is wrong with the start, from the first losses; None where nothing is."""
    base = next((row.first_loss for row in rows if row.variant.name == BASELINE), None)
    by_dtype: dict[str, float] = {}
    for row in rows:
        loss = row.first_loss
        if loss is None or not math.isfinite(loss):
            continue
        # In one format the forward pass is the same to the last bits.
        same = by_dtype.setdefault(row.variant.dtype, loss)
        for other, rounding in (
            (same, ROUNDING["float32"]),
            (base, ROUNDING[row.variant.dtype]),
        ):
            if other is not None and not _near(loss, other, rounding):
                return (
                    f"The runs did not start alike: the first loss is {loss:.6g} in "
                    f"{row.variant.words} and {other:.6g} in another run, more than rounding "
                    "explains. The script draws random numbers that no seed fixes; give it a seed "
                    "of its own."
                )
    return None


def _near(loss: float, other: float, rounding: float) -> bool:
    if not math.isfinite(other):
        return True
    return abs(loss - other) <= ROUNDINGS * rounding * max(abs(loss), abs(other))
