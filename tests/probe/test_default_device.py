"""A script may have a default device: what we make ourselves is not on it unless it has to be."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from late_numbers import make_late
from torch import nn
from training_loops import recording

import ampwatch
from ampwatch.controls import Request

PACKAGE = Path(ampwatch.__file__).parent
MAKERS = ("empty", "zeros", "ones", "tensor", "arange", "full", "linspace", "as_tensor", "eye")
"""Functions of torch's that make a tensor on the default device."""


def train(default: str | None) -> list[str]:
    """Everything that is recorded of a training on the CPU, but for times."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
    scaler.scale(torch.ones(()))
    numbers = torch.Generator(device="cpu").manual_seed(1)
    with recording() as host:
        boundary = host.boundary

        def asking(turn: Any, *more: Any) -> None:
            if host.steps and host.steps[-1].step % 16 == 3:
                turn(Request("explain"))
                turn(Request("inject"))
            boundary(turn, *more)

        host.boundary = asking  # type: ignore[method-assign]
        torch.set_default_device(default)
        watch = ampwatch.hook(net, optimizer, scaler)
        for step in range(60):
            inputs = torch.randn(4, 8, generator=numbers, device="cpu")
            if step == 30:
                inputs[0, 0] = torch.nan
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                made = net(inputs)
            loss = (made.float() * (1e30 if step % 13 == 7 else 1.0)).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        watch.close()
        assert host.notices == []
    assert len(host.steps) == 60
    fields = ("step", "loss", "scale", "skipped", "grad_norm", "clipped_norm", "facts", "exponents")
    return [
        f"{type(record).__name__} {[getattr(record, name, None) for name in fields]}"
        for record in host.records
    ]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_the_same_is_recorded_whatever_the_default_device(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if late:
        make_late(monkeypatch)
    plain = train(None)
    try:
        assert train("meta") == plain
    finally:
        torch.set_default_device(None)
    assert {each.split()[0] for each in plain} >= {"StepRecord", "TensorStats", "StepAnatomy"}


@pytest.mark.parametrize("folder", [".", "probe"])
def test_tensors_of_our_own_say_where_they_are(folder: str) -> None:
    """What only a device runs cannot be tried here: so it is read."""
    silent = [
        f"{path.name}:{node.lineno}"
        for path in sorted((PACKAGE / folder).glob("*.py"))
        if path.name != "check.py"  # makes a training of its own
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "torch"
        and node.func.attr in MAKERS
        and not any(keyword.arg == "device" for keyword in node.keywords)
    ]
    assert silent == []
