"""The level of the scale: a fixed one, and one that leaves its range."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from watched_loops import (
    NAN,
    F,
    Loops,
    amp,
    mean_loss,
    mlp,
    scaled_down,
    scaling,
    sum_loss,
    train,
    wide,
)

LOOPS = Loops()


@LOOPS.add("static-scale-too-high")
def held_too_high_by_a_tensor() -> None:
    # growth/backoff factors near 1 by hand: scaler refuses growth 1.0; new_scale tensor
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    scaler = scaling(init_scale=2.0**22)
    for _ in range(60):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update(torch.tensor(2.0**22))


@LOOPS.add("static-scale-too-high")
def too_high_for_two_of_three() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    scaler = scaling(init_scale=2.0**13)
    for step in range(80):
        x = torch.randn(64, 32) * (30 if step % 3 else 1)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update(2.0**13)


@LOOPS.add("static-scale-too-high")
def a_backoff_that_does_nothing() -> None:
    train(
        mlp(32, 64),
        60,
        sum_loss,
        scaling(init_scale=2.0**22, backoff_factor=0.999999),
        data=wide,
        optimizer=SGD,
        rate=1e-6,
    )


@LOOPS.add("static-scale-too-low", may="gradient-underflow weights-not-moving")
def held_too_low() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    scaler = scaling(init_scale=1.0)
    for _ in range(80):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True)) * 1e-5
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update(1.0)


@LOOPS.add("static-scale-too-low", may="gradient-underflow weights-not-moving")
def too_low_without_growth() -> None:
    train(
        mlp(32, 64),
        80,
        scaled_down(1e-5),
        scaling(init_scale=8.0, growth_interval=10**9),
        data=wide,
        optimizer=SGD,
        rate=1.0,
    )


@LOOPS.add("static-scale-too-low", may="gradient-underflow weights-not-moving dead-gradients")
def too_low_for_anything() -> None:
    train(
        mlp(32, 64),
        80,
        scaled_down(1e-8),
        scaling(init_scale=2.0, growth_interval=10**9),
        data=wide,
        optimizer=SGD,
        rate=1.0,
    )


@LOOPS.add("static-scale-too-low", may="gradient-underflow weights-not-moving")
def too_low_in_a_short_run() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    scaler = scaling(init_scale=16.0)
    for _ in range(30):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True)) * 1e-5
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update(16.0)


@LOOPS.add()
def held_where_it_fits() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for _ in range(80):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update(1024.0)


@LOOPS.add("scale-runaway", may="gradient-underflow weights-not-moving")
def run_away_in_float32() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(growth_interval=2)
    for _ in range(120):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x) * 1e-9
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("scale-runaway", may="gradient-underflow weights-not-moving")
def run_away_in_float16() -> None:
    train(
        steps=120,
        scaler=scaling(growth_interval=3),
        loss=lambda model, x: mean_loss(model, x) * 1e-12,
    )


@LOOPS.add("scale-runaway", may="gradient-underflow weights-not-moving")
def run_away_until_it_overflows() -> None:
    model = nn.Linear(5, 1)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = scaling(growth_interval=1)
    for _ in range(400):
        x = torch.randn(8, 5)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean() * 1e-12
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add(
    "scale-below-one",
    may="exploding-gradients growth-interval-too-short weights-not-moving scale-collapse",
)
def below_one_for_large_losses() -> None:
    train(
        mlp(32, 64),
        100,
        lambda model, x: F.mse_loss(model(x).float(), x.sum(1, keepdim=True) * 1e8),
        scaling(),
        data=wide,
        optimizer=SGD,
        rate=1e-14,
    )


@LOOPS.add("scale-below-one", may="weights-not-moving")
def made_below_one() -> None:
    train(scaler=scaling(init_scale=0.01), data=lambda _: torch.randn(8, 16), optimizer=Adam)


@LOOPS.add("scale-collapse", may="nan-not-overflow nonfinite-input weights-not-moving")
def nan_until_the_scale_is_zero() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling()
    for step in range(180):
        x = torch.randn(8, 16)
        if step < 170:
            x[0, 0] = NAN
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
