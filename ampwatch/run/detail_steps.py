"""Several optimizers record their parameters one by one; together they are one detail step."""

from __future__ import annotations

from ampwatch.record import TensorStats


def joined(before: TensorStats | None, record: TensorStats) -> TensorStats:
    """``record``, with what other optimizers have recorded of the same step in front."""
    if before is None or before.step != record.step or not before.name:
        return record
    whole = bool(before.size) == bool(record.size), bool(before.exponents) == bool(record.exponents)
    if (
        not all(whole)
        or before.scale != record.scale
        or not set(before.name).isdisjoint(record.name)
    ):
        return record
    return TensorStats(
        record.step,
        before.name + record.name,
        before.norm + record.norm,
        before.max + record.max,
        before.zeros + record.zeros,
        before.nonfinite + record.nonfinite,
        before.size + record.size,
        before.exponents + record.exponents,
        record.scale,
    )
