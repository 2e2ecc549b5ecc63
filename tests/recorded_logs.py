"""Logs of runs that are made up: a healthy one and one whose scale collapses."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from ampwatch.log import LogWriter
from ampwatch.record import Record, RunEnd, RunInfo, ScalerInfo, StepRecord

INFO = RunInfo(
    "toy",
    1.0,
    device="cpu",
    tensors=("head.weight", "body.weight"),
    scaler=ScalerInfo("dynamic", 65536.0, 2.0, 0.5, 2000),
)


def step(number: int, scale: float, skipped: bool = False, **fields: object) -> StepRecord:
    return StepRecord(
        number,
        number * 0.1,
        loss=0.5,
        scale=scale,
        growth_tracker=0,
        skipped=skipped,
        grad_norm=math.inf if skipped else 1.0,
        nonfinite_tensors=int(skipped),
        origin="head.weight" if skipped else None,
        dtype="float16",
        scaler="dynamic",
    )._replace(**fields)  # type: ignore[arg-type]


def healthy(steps: int = 30) -> list[Record]:
    """Two skips while the scale settles, and nothing else."""
    scales = [65536.0, 32768.0] + [16384.0] * (steps - 2)
    taken = [step(number, scale, number < 2) for number, scale in enumerate(scales)]
    return [INFO, *taken, RunEnd("finished", steps)]


def collapse(skips: int = 40) -> list[Record]:
    """Five good steps, and then every step is skipped and halves the scale."""
    good = [step(number, 1024.0, growth_tracker=number) for number in range(5)]
    bad = [step(5 + number, 1024.0 * 0.5**number, True) for number in range(skips)]
    return [INFO, *good, *bad, RunEnd("finished", 5 + skips)]


def write_log(path: Path, records: Iterable[Record]) -> Path:
    log = LogWriter(path)
    for record in records:
        log.put(record)
    log.close()
    return path
