"""What crosses from a training process to everything else: plain numbers, no tensors.

A record is one JSON object on one line, in the log and on the way to the dashboard alike.
Absent means not measured, never 0. JSON has no NaN and no infinities: they are the strings
``"nan"``, ``"inf"`` and ``"-inf"``.
"""

from __future__ import annotations

from ampwatch.record.anatomy import Followed, Operation, StepAnatomy
from ampwatch.record.decode import from_json
from ampwatch.record.encode import strict, to_json
from ampwatch.record.shapes import (
    NO_METRICS,
    SCHEMA,
    ActivationStats,
    Exponents,
    Notice,
    Record,
    RunEnd,
    RunInfo,
    ScalerInfo,
    StepRecord,
    TensorStats,
)

__all__ = [
    "NO_METRICS",
    "SCHEMA",
    "ActivationStats",
    "Exponents",
    "Followed",
    "Notice",
    "Operation",
    "Record",
    "RunEnd",
    "RunInfo",
    "ScalerInfo",
    "StepAnatomy",
    "StepRecord",
    "TensorStats",
    "from_json",
    "strict",
    "to_json",
]
