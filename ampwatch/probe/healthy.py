"""The record of nearly every step on the CPU, where all numbers are there at once."""

from __future__ import annotations

import math

from torch import Tensor
from torch.optim import Optimizer

from ampwatch.probe.draft import Around, learning_rate
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.record import StepRecord


def healthy_record(
    step: int,
    state: OptimizerState,
    optimizer: Optimizer,
    norms: list[float],
    found: list[Tensor],
    losses: list[Tensor] | list[float],
    around: Around,
    overhead: float | None,
) -> StepRecord:
    """As :class:`ampwatch.probe.draft.Draft` makes it, in half the time."""
    norm = math.hypot(*norms)
    scale = tracker = None
    if state.scale:
        scale = state.scale[0].item()
        tracker = int(state.scale[1].item()) if len(state.scale) > 1 else None
        norm = norm / scale if scale else norm
    if found:
        skipped: bool | None = any(flag.item() for flag in found)
    else:
        skipped = False if around.scaler else None
    loss = None
    if losses:
        values = [each.item() if isinstance(each, Tensor) else each for each in losses]
        loss = values[0] if len(values) == 1 else sum(values) / len(values)
    return StepRecord(
        step,
        around.time,
        loss,
        len(losses) or None,
        scale,
        tracker,
        skipped,
        norm,
        None,
        None,
        0,
        0,
        None,
        around.dtype,
        around.scaler,
        learning_rate(optimizer),
        state.label,
        around.target_gain,
        around.loss_gain,
        overhead,
        around.facts,
        around.metrics,
    )
