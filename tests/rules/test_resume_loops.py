"""Training that is resumed, and scalers that are made anew."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from watched_loops import F, Loops, amp, mean_loss, mlp, scaling

LOOPS = Loops()


def phase(make: Callable[[Any], Any], restored: bool) -> None:
    """Twenty steps, then the same from what was saved."""
    model, scaler = mlp(), scaling()
    optimizer, x = make(model.parameters()), torch.randn(64, 16)
    for part in range(2):
        for _ in range(20):
            optimizer.zero_grad()
            with amp():
                loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True) * 100)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        if part == 0:
            saved = model.state_dict(), optimizer.state_dict(), scaler.state_dict()
            model, scaler = mlp(), scaling()
            optimizer = make(model.parameters())
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
            if restored:
                scaler.load_state_dict(saved[2])


@LOOPS.add("scaler-state-not-restored", may="exploding-gradients")
def resumed_with_adam() -> None:
    phase(lambda p: torch.optim.Adam(p, 1e-3), False)


@LOOPS.add("scaler-state-not-restored", may="exploding-gradients")
def resumed_with_momentum() -> None:
    phase(lambda p: torch.optim.SGD(p, 1e-5, momentum=0.9), False)


@LOOPS.add("scaler-state-not-restored", may="exploding-gradients")
def resumed_without_momentum() -> None:
    phase(lambda p: torch.optim.SGD(p, 1e-5), False)


@LOOPS.add("scaler-state-not-restored")
def resumed_from_a_file() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling()

    def go(model, optimizer, scaler, n):
        for _ in range(n):
            x = torch.randn(32, 16)
            optimizer.zero_grad()
            with amp():
                loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True) * 100)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    go(model, optimizer, scaler, 20)
    b = io.BytesIO()
    torch.save({"m": model.state_dict(), "o": optimizer.state_dict()}, b)
    b.seek(0)
    c = torch.load(b)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling()
    model.load_state_dict(c["m"])
    optimizer.load_state_dict(c["o"])
    go(model, optimizer, scaler, 20)


@LOOPS.add(may="exploding-gradients")
def resumed_with_the_scaler() -> None:
    phase(lambda p: torch.optim.Adam(p, 1e-3), True)


@LOOPS.add(may="exploding-gradients")
def resumed_without_momentum_with_the_scaler() -> None:
    phase(lambda p: torch.optim.SGD(p, 1e-5), True)


@LOOPS.add("scaler-recreated")
def a_new_scaler_every_epoch() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(4):
        scaler = scaling()
        for _ in range(10):
            x = torch.randn(32, 16)
            optimizer.zero_grad()
            with amp():
                loss = mean_loss(model, x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


@LOOPS.add("scaler-recreated")
def a_new_scaler_every_step() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        scaler = scaling()
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
