"""Backward passes and steps inside autocast."""

from __future__ import annotations

import pytest
import torch
from watched_loops import Loops, amp, mean_loss, mlp, scaling

LOOPS = Loops()


@LOOPS.add("backward-in-autocast step-in-autocast")
def everything_inside_autocast() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(40):
        with amp():
            x = torch.randn(8, 16)
            optimizer.zero_grad()
            loss = mean_loss(model, x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


@LOOPS.add("step-in-autocast")
def only_the_step_inside_autocast() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(40):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        with amp():
            scaler.step(optimizer)
        scaler.update()


@LOOPS.add("backward-in-autocast")
def backward_inside_bfloat16_autocast() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp(torch.bfloat16):
            loss = mean_loss(model, x)
            loss.backward()
        optimizer.step()


@LOOPS.add()
def backward_inside_autocast_that_is_off() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            loss = mean_loss(model, x)
            loss.backward()
            optimizer.step()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
