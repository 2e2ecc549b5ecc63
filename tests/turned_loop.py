"""A loop whose knobs tests turn."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from training_loops import RecordingHost, found_inf, true_norm

import ampwatch
from ampwatch.controls import Request
from ampwatch.record import Notice


class TurnedLoop:
    """A loop whose knobs are turned between its steps, as a dashboard would."""

    def __init__(
        self, recorded: RecordingHost, scaler: dict[str, Any] | None = None, **hook: Any
    ) -> None:
        torch.manual_seed(0)
        self.recorded = recorded
        self.net = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.scaler = None if scaler is None else torch.amp.GradScaler("cpu", **scaler)
        self.watch = ampwatch.hook(self.net, self.optimizer, self.scaler)
        self.dtypes: list[torch.dtype] = []
        self.norms: list[float] = []
        self.losses: list[float] = []
        self.skipped: list[bool] = []

    def take(self, steps: int = 1, autocast: bool = True) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                output = self.net(torch.ones(2, 4))
                loss = (output - self.watch.target_gain).float().pow(2).mean()
            self.dtypes.append(output.dtype)
            self.losses.append(loss.item())
            if self.scaler is None:
                loss.backward()
                self.norms.append(true_norm(self.net.parameters()))
                self.optimizer.step()
                continue
            self.scaler.scale(loss).backward()
            self.norms.append(true_norm(self.net.parameters(), self.scaler.get_scale()))
            self.scaler.step(self.optimizer)
            self.skipped.append(self.scaler.is_enabled() and found_inf(self.scaler, self.optimizer))
            self.scaler.update()

    def turn(self, knob: str, value: Any = None) -> Notice:
        notice = self.watch._loop.knobs.turn(Request(knob, value))
        assert notice is not None
        assert notice.text
        return notice
