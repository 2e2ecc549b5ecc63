"""Step records of a loop around torch's own GradScaler, whose gradients a test dictates.

Nothing of ampwatch's hook is in here: scale, growth tracker and skip are read off the scaler, so
that what a rule is shown is what torch really does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from ampwatch.record import Record, RunInfo, ScalerInfo, StepRecord

FP16_MAX = 65504.0


class ScalerLoop:
    """One weight, trained with gradients that are given step by step."""

    def __init__(
        self, init_scale: float = 65536.0, growth_interval: int = 2000, dtype: str = "float16"
    ) -> None:
        self.dtype = dtype
        self.interval = growth_interval
        self.init_scale = init_scale
        self.step = 0
        self.skips: list[int] = []
        self.info = RunInfo(
            "loop",
            1.0,
            tensors=("weight",),
            scaler=ScalerInfo("dynamic", init_scale, 2.0, 0.5, growth_interval),
        )
        self.records: list[Record] = [self.info]
        self._weight = torch.nn.Parameter(torch.zeros(1))
        self._optimizer = torch.optim.SGD([self._weight], lr=0.0)
        self.new_scaler()

    def new_scaler(self) -> None:
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=self.init_scale, growth_interval=self.interval
        )
        self.scaler.scale(torch.ones(1))

    def train(
        self,
        gradients: Iterable[float],
        loss: float = 1.0,
        new_scale: float | None = None,
        target_gain: float | None = None,
    ) -> ScalerLoop:
        """Take one step for each true gradient; it overflows as float16 would."""
        for gradient in gradients:
            scale = self.scaler.get_scale()
            scaled = scale * gradient
            limit = FP16_MAX if self.dtype == "float16" else math.inf
            self._weight.grad = torch.tensor([scaled if abs(scaled) <= limit else math.inf])
            tracker = int(self.scaler._growth_tracker.item())
            self.scaler.unscale_(self._optimizer)
            state = self.scaler._per_optimizer_states[id(self._optimizer)]
            skipped = any(bool(found.item()) for found in state["found_inf_per_device"].values())
            self.scaler.step(self._optimizer)
            self.scaler.update(new_scale)
            if skipped:
                self.skips.append(self.step)
            self.records.append(
                StepRecord(
                    self.step,
                    self.step * 0.01,
                    loss=loss,
                    scale=scale,
                    growth_tracker=tracker,
                    skipped=skipped,
                    grad_norm=math.inf if skipped else abs(gradient),
                    nonfinite_tensors=int(skipped),
                    nonfinite_values=int(skipped),
                    origin="weight" if skipped else None,
                    dtype=self.dtype,
                    scaler="dynamic",
                    optimizer="SGD",
                    target_gain=target_gain,
                )
            )
            self.step += 1
        return self
