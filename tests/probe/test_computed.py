"""The dtype of a training that does not use autocast is that of its own numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from training_loops import RecordingHost

import ampwatch


def take_steps(net: nn.Module, dtype: torch.dtype, steps: int = 3, warm_up: int = 0) -> None:
    """The first ones without autocast, if it is used at all."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with ampwatch.hook(net, optimizer):
        for step in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=warm_up > 0 and step >= warm_up):
                made = net(torch.randn(4, 8, dtype=dtype))
            made.float().square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_it_is_that_of_the_products(name: str, recorded: RecordingHost) -> None:
    dtype = getattr(torch, name)
    take_steps(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to(dtype), dtype)
    assert [record.dtype for record in recorded.steps] == [name] * 3


def test_norms_in_float32_do_not_count(recorded: RecordingHost) -> None:
    class Norm(nn.LayerNorm):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return super().forward(values.float()).to(values.dtype)

    layers = [layer for _ in range(4) for layer in (Norm(8), nn.Linear(8, 8).bfloat16())]
    take_steps(nn.Sequential(*layers), torch.bfloat16)
    assert [record.dtype for record in recorded.steps] == ["bfloat16"] * 3


def test_autocast_that_comes_later_is_told_when_it_comes(recorded: RecordingHost) -> None:
    take_steps(nn.Linear(8, 1), torch.float32, steps=4, warm_up=2)
    assert [record.dtype for record in recorded.steps] == ["float32"] * 2 + ["bfloat16"] * 2


def test_without_a_product_what_else_is_computed_tells(recorded: RecordingHost) -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    with ampwatch.hook(None, optimizer):
        weight.square().sum().backward()
        optimizer.step()
    assert recorded.steps[0].dtype == "float64"
