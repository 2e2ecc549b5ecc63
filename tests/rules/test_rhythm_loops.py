"""Skips in a rhythm: by growth, and by a term that comes at every n-th step."""

from __future__ import annotations

import pytest
import torch
from torch.optim import SGD
from watched_loops import F, Loops, amp, mlp, scaling, sum_loss, train, wide

LOOPS = Loops()


def growing(steps: int, **settings: float) -> None:
    """A scale that grows until it overflows, and again."""
    scaler = scaling(init_scale=2.0**12, **settings)
    train(mlp(32, 64), steps, sum_loss, scaler, data=wide, optimizer=SGD, rate=1e-6)


def periodic(
    period: int, interval: int, steps: int, heavy: float = 1e7, init: float = 2.0**12
) -> None:
    """A term that is so heavy that its step is skipped, in every step of that number."""
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    scaler = scaling(init_scale=init, growth_interval=interval)
    for step in range(steps):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
            if step % period == period - 1:
                loss = loss + heavy * model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("growth-interval-too-short")
def a_heavy_term_in_every_16th_step() -> None:
    periodic(16, 4, 160)


@LOOPS.add("growth-interval-too-short")
def a_little_heavy_term_in_every_16th_step() -> None:
    periodic(16, 5, 600, heavy=1e3)


@LOOPS.add("growth-interval-too-short")
def a_heavy_term_in_every_50th_step() -> None:
    periodic(50, 20, 400)


@LOOPS.add("growth-interval-too-short")
def a_second_backward_in_every_16th_step() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    scaler = scaling(init_scale=2.0**12, growth_interval=4)
    for step in range(160):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        if step % 16 == 0:
            with amp():
                r = 1e5 * model(x).float().pow(2).mean()
            scaler.scale(r).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("scale-settling")
def a_heavy_term_that_the_scale_settles_for() -> None:
    periodic(16, 2000, 300, heavy=1e3, init=65536.0)


@LOOPS.add("growth-interval-too-short growth-probe-skip")
def growth_every_10_steps() -> None:
    growing(300, growth_interval=10)


@LOOPS.add("growth-interval-too-short growth-probe-skip")
def growth_every_step() -> None:
    growing(100, growth_interval=1)


@LOOPS.add("growth-interval-too-short growth-probe-skip")
def growth_by_16() -> None:
    growing(300, growth_interval=10, growth_factor=16.0)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
