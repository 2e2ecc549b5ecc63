"""Schedules that move on over skipped steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from watched_loops import F, Loops, amp, mlp, scaling

LOOPS = Loops()


def sched(schedule: Callable[[Any], Any], kind: Any = torch.optim.SGD) -> None:
    """A first scale that is skipped ten times, with a schedule that moves at every step."""
    model = mlp(32, 64)
    optimizer = kind(model.parameters(), 1e-3)
    moving, scaler, x = schedule(optimizer), scaling(init_scale=2.0**24), torch.randn(64, 32)
    for _ in range(60):
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        moving.step()


@LOOPS.add("schedule-on-skipped-step scale-settling")
def a_cosine_schedule() -> None:
    sched(lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60))


@LOOPS.add("schedule-on-skipped-step")
def a_schedule_before_the_step() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    scaler = scaling(init_scale=2.0**24)
    x = torch.randn(64, 32)
    for _ in range(60):
        schedule.step()
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("schedule-on-skipped-step")
def a_schedule_and_skips_by_growth() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
    scaler = scaling(init_scale=2.0**12, growth_interval=60)
    x = torch.randn(64, 32)
    for _ in range(400):
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()


@LOOPS.add("schedule-on-skipped-step")
def a_schedule_and_a_fused_optimizer() -> None:
    sched(
        lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=30),
        kind=lambda parameters, rate: torch.optim.AdamW(parameters, rate, fused=True),
    )


@LOOPS.add("schedule-on-skipped-step")
def a_schedule_in_a_short_run() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=31)
    scaler = scaling(init_scale=2.0**24)
    for _ in range(30):
        x = torch.randn(32, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
