"""Training loops for tests: the same loop with and without a hook.

What a test expects comes from the loop itself: it copies found_inf before ``update()`` clears it,
and takes the norm of its gradients in float64.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import ampwatch
from ampwatch import host
from ampwatch.host import Host
from ampwatch.record import Notice, Record, RunInfo, StepRecord, TensorStats

INPUTS = 8


class RecordingHost(Host):
    """Keeps what is recorded."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(name="test", **settings)
        self.records: list[Record] = []

    def put(self, record: Record) -> None:
        super().put(record)
        self.records.append(record)

    def say(self, text: str) -> None:
        self.put(Notice(text))

    @property
    def steps(self) -> list[StepRecord]:
        return [record for record in self.records if isinstance(record, StepRecord)]

    @property
    def skips(self) -> list[int]:
        return [record.step for record in self.steps if record.skipped]

    @property
    def notices(self) -> list[str]:
        return [record.text for record in self.records if isinstance(record, Notice)]

    @property
    def stats(self) -> list[TensorStats]:
        return [record for record in self.records if isinstance(record, TensorStats)]

    @property
    def infos(self) -> list[RunInfo]:
        return [record for record in self.records if isinstance(record, RunInfo)]

    @property
    def facts(self) -> set[str]:
        return {fact for record in self.steps for fact in record.facts}


@contextlib.contextmanager
def recording(**settings: Any) -> Iterator[RecordingHost]:
    """Hooks made inside report to this host."""
    before, here = host.current(), RecordingHost(**settings)
    host.install(here)
    try:
        yield here
    finally:
        host.install(before)


def true_norm(parameters: Any, scale: float = 1.0) -> float:
    """The L2 norm of the gradients in float64, divided by the scale."""
    squares = [
        (p.grad.to_dense() if p.grad.is_sparse else p.grad).abs().double().div(scale).pow(2).sum()
        for p in parameters
        if p.grad is not None
    ]
    return math.sqrt(sum(float(square) for square in squares))


def found_inf(scaler: Any, optimizer: Any) -> bool:
    """What the scaler found; to be read before ``update()``."""
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
    return any(bool(flag) for flag in found)


def network(batch_norm: bool = False) -> nn.Module:
    middle: list[nn.Module] = [nn.BatchNorm1d(16), nn.Dropout(0.3)] if batch_norm else []
    return nn.Sequential(nn.Linear(INPUTS, 16), *middle, nn.ReLU(), nn.Linear(16, 1))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3)


@dataclass(frozen=True)
class Case:
    """One way to write a training loop."""

    steps: int = 200
    model: Callable[[], nn.Module] = network
    optimizer: Callable[[Any], torch.optim.Optimizer] = sgd
    scaler: dict[str, Any] | None = field(default_factory=lambda: {"growth_interval": 7})
    """Arguments of GradScaler, or None for a loop without one."""
    dtype: torch.dtype = torch.float16
    unscale: bool = False
    clip: dict[str, Any] | None = None
    """Arguments of clip_grad_norm_."""
    clip_some: bool = False
    """Whether only the first layer is clipped."""
    accumulate: int = 1
    wrap: Callable[[nn.Module], Any] = lambda model: model

    def but(self, **changes: Any) -> Case:
        return dataclasses.replace(self, **changes)


@dataclass
class Outcome:
    """What an independent look at a loop found."""

    weights: dict[str, Tensor]
    skips: list[int] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)


def train(case: Case, hooked: bool, look: bool = True) -> Outcome:
    """Run a loop; ``look`` takes what is expected of the records from it."""
    torch.manual_seed(3)
    model = case.model()
    optimizer = case.optimizer(model.parameters())
    scaler = None if case.scaler is None else torch.amp.GradScaler("cpu", **case.scaler)
    watch = ampwatch.hook(model, optimizer, scaler) if hooked else None
    forward = case.wrap(model)
    active = scaler is not None and scaler.is_enabled()
    outcome = Outcome({})
    some = list(model.parameters())[:2] if case.clip_some else list(model.parameters())
    for step in range(case.steps):
        optimizer.zero_grad()
        losses = []
        for _ in range(case.accumulate):
            inputs = torch.randn(32, INPUTS)
            targets = inputs.sum(1, keepdim=True) * (1.0 if step % 5 else 30.0)
            with torch.autocast("cpu", case.dtype):
                loss = nn.functional.mse_loss(forward(inputs), targets)
            losses.append(loss.item())
            (loss if scaler is None else scaler.scale(loss)).backward()
        scale = float(scaler._scale) if active else 1.0
        if look:
            outcome.losses.append(sum(losses) / len(losses))
            outcome.scales.append(scale)
            outcome.norms.append(true_norm(model.parameters(), scale))
        if case.unscale:
            scaler.unscale_(optimizer)
        if case.clip is not None:
            torch.nn.utils.clip_grad_norm_(some, **case.clip)
            if look:
                outcome.clipped.append(
                    true_norm(model.parameters(), 1.0 if case.unscale else scale)
                )
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            if active and look and found_inf(scaler, optimizer):
                outcome.skips.append(step)
            scaler.update()
    if watch is not None:
        watch.close()
    outcome.weights = {name: value.clone() for name, value in model.state_dict().items()}
    return outcome


def assert_same_weights(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """Equal to the last bit; NaN equals NaN."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value.nan_to_num(7.0), right[name].nan_to_num(7.0)), name
        assert torch.equal(value.isnan(), right[name].isnan()), name


CLIPPED = Case(steps=40, unscale=True, clip={"max_norm": 0.5})


def strange_script(steps: int, clip: float) -> list[float]:
    """A loop without a scaler that never heard of us; its gradient norms before the clip."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    norms = []
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).pow(2).mean().backward()
        norms.append(true_norm(net.parameters()))
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
    return norms


class Bench:
    """A small network with everything a loop needs; ``take`` ends a step."""

    def __init__(self, recorded: RecordingHost, **scaler: Any) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", **scaler)
        self.recorded = recorded
        self.watch = ampwatch.hook(self.net, self.optimizer, self.scaler)

    def loss(self, gain: float = 1.0) -> Tensor:
        return self.net(torch.ones(3, 4) * gain).pow(2).mean()

    def norm(self) -> float:
        return true_norm(self.net.parameters(), self.scaler.get_scale())

    def take(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
