"""Several optimizers record their parameters one by one; together they are one detail step."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from ampwatch.record import ActivationStats, TensorStats

Stats = TypeVar("Stats", TensorStats, ActivationStats)


def joined(before: Stats | None, record: Stats) -> Stats:
    """``record``, with what other optimizers have recorded of the same step in front."""
    if before is None or before.step != record.step or before.scale != record.scale:
        return record
    if isinstance(record, TensorStats) and not set(before.name).isdisjoint(record.name):
        return record
    columns = {
        field.name: getattr(before, field.name) + getattr(record, field.name)
        for field in fields(record)
        if field.name not in ("step", "scale")
    }
    rows = len(columns["name"])
    if any(column and len(column) != rows for column in columns.values()):
        return record  # one of them lacks some of the figures
    return type(record)(step=record.step, scale=record.scale, **columns)
