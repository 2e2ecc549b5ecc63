"""Looking for the cause of an inf or NaN changes no bit of the training, nor torch's generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ampwatch

STEPS = 40


def bad_batch(step: int, x: Tensor) -> Tensor:
    if step % 9 == 4:
        x[1, 2] = float("nan")
    return x


def large_batch(step: int, x: Tensor) -> Tensor:
    """Beyond float16 in the second layer."""
    return x * (3e4 if step % 7 == 3 else 1.0)


def train(batch: Callable[[int, Tensor], Tensor], *, watched: bool) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    watch = ampwatch.hook(model, optimizer, scaler) if watched else contextlib.nullcontext()
    with watch:
        for step in range(STEPS):
            x = batch(step, torch.randn(32, 12))
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(x).square() * x.square().sum()).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return {**model.state_dict(), "scale": torch.tensor(scaler.get_scale()), "next": torch.rand(4)}


@pytest.mark.parametrize("batch", [bad_batch, large_batch])
def test_bits_are_the_same_while_causes_are_looked_for(
    batch: Callable[[int, Tensor], Tensor],
) -> None:
    plain, watched = train(batch, watched=False), train(batch, watched=True)
    assert plain["scale"] < 2.0**10, "the loop has to go wrong for this to show anything"
    for name, value in plain.items():
        same = torch.equal(value.nan_to_num(7.0), watched[name].nan_to_num(7.0))
        assert same, name
