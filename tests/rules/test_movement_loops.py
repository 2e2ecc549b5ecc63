"""Weights that stand still, and weights that are meant to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import SGD, Adam
from watched_loops import F, Loops, mean_loss, mlp, scaling, train

LOOPS = Loops()


def in_bfloat16(optimizer: Any, rate: float, steps: int = 60) -> None:
    """Weights in bfloat16, without a scaler."""
    model = mlp().to(torch.bfloat16)
    stepping = optimizer(model.parameters(), rate)
    for _ in range(steps):
        x = torch.randn(32, 16).bfloat16()
        stepping.zero_grad()
        F.mse_loss(model(x), x.mean(1, keepdim=True)).backward()
        stepping.step()


@LOOPS.add("weights-not-moving")
def bfloat16_weights_with_sgd() -> None:
    in_bfloat16(SGD, 1e-4)


@LOOPS.add("weights-not-moving")
def bfloat16_weights_with_adam() -> None:
    in_bfloat16(Adam, 1e-6)


@LOOPS.add("weights-not-moving")
def a_tiny_rate() -> None:
    train(optimizer=SGD, rate=1e-10)


@LOOPS.add("weights-not-moving")
def a_short_run_in_bfloat16() -> None:
    in_bfloat16(torch.optim.AdamW, 1e-6, steps=30)


@LOOPS.add("weights-not-moving")
def accumulation_in_bfloat16() -> None:
    model = mlp().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6)
    for step in range(120):
        x = torch.randn(32, 16).bfloat16()
        loss = F.mse_loss(model(x), x.mean(1, keepdim=True))
        (loss / 2).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()


@LOOPS.add()
def a_rate_that_warms_up() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 50))
    for _ in range(80):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()
        schedule.step()


@LOOPS.add()
def bfloat16_weights_that_move() -> None:
    model = mlp().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(60):
        x = torch.randn(32, 16).bfloat16()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.mean(1, keepdim=True))
        loss.backward()
        optimizer.step()


@LOOPS.add()
def a_group_with_rate_0() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}], lr=1e-2
    )
    for _ in range(60):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()


@LOOPS.add(may="scale-settling")
def every_first_step_skipped() -> None:
    train(scaler=scaling(init_scale=2.0**40), optimizer=SGD)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
