"""Calls of the scaler in the wrong place, and the same calls in the right one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import Loops, amp, mean_loss, mlp, scaling, train

LOOPS = Loops()


@LOOPS.add("scaler-call-order", error="RuntimeError")
def unscale_twice() -> None:
    train(
        before_step=lambda step, model, optimizer, scaler: (
            scaler.unscale_(optimizer),
            scaler.unscale_(optimizer) if step == 3 else None,
        )
    )


@LOOPS.add("scaler-call-order", error="RuntimeError")
def a_step_left_out_without_update() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for step in range(20):
        x = torch.randn(8, 16) * (1e3 if step == 5 else 1)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 100:
            continue
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("scaler-call-order", error="AssertionError")
def update_twice() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for _ in range(20):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scaler.update()


@LOOPS.add("scaler-call-order", error="RuntimeError")
def unscale_after_step() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for _ in range(20):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.unscale_(optimizer)
        scaler.update()


@LOOPS.add("scaler-call-order", may="unscaled-backward", error="AssertionError")
def nothing_was_ever_scaled() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for _ in range(20):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        loss.backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("scaler-call-order", error="No inf checks")
def update_before_step() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(10):
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, torch.randn(4, 16))
        scaler.scale(loss).backward()
        scaler.update()
        scaler.step(optimizer)


@LOOPS.add("scaler-call-order", error="RuntimeError")
def unscale_in_every_micro_batch() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for step in range(20):
        x = torch.randn(8, 16)
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if step % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


@LOOPS.add("scaler-call-order", may="exploding-gradients loss-spike")
def unscale_in_the_first_micro_batch() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    scaler = scaling(init_scale=64.0)
    for step in range(80):
        x = torch.randn(8, 16)
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        if step % 4 == 0:
            scaler.unscale_(optimizer)
        if step % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


@LOOPS.add("scaler-call-order")
def unscale_and_update_in_mid_accumulation() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0, growth_interval=3)
    for step in range(80):
        x = torch.randn(8, 16)
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        if step % 4 == 1:
            scaler.unscale_(optimizer)
        if step % 4 == 1:
            scaler.update()
        if step % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


@LOOPS.add("scaler-call-order")
def update_between_two_optimizers() -> None:
    a, b = mlp(), mlp()
    oa, ob = torch.optim.Adam(a.parameters(), 1e-3), torch.optim.Adam(b.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for _ in range(60):
        x = torch.randn(32, 16)
        oa.zero_grad()
        ob.zero_grad()
        with amp():
            la, lb = mean_loss(a, x), mean_loss(b, x)
        scaler.scale(la).backward()
        scaler.scale(lb).backward()
        scaler.step(oa)
        scaler.update()
        scaler.step(ob)
        scaler.update()


@LOOPS.add("scaler-call-order")
def update_between_two_optimizers_of_one_loss() -> None:
    a, b = mlp(), mlp()
    oa, ob = torch.optim.Adam(a.parameters(), 1e-3), torch.optim.Adam(b.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0, growth_interval=10)
    for _ in range(60):
        x = torch.randn(32, 16)
        oa.zero_grad()
        ob.zero_grad()
        with amp():
            loss = mean_loss(a, x) + mean_loss(b, x)
        scaler.scale(loss).backward()
        scaler.step(oa)
        scaler.update()
        scaler.step(ob)
        scaler.update()


@LOOPS.add("scaler-call-order", error="RuntimeError")
def a_closure_by_name() -> None:
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters())
    scaler = scaling(init_scale=64.0)
    for _ in range(10):
        x = torch.randn(8, 16)

        def c():
            optimizer.zero_grad()
            with amp():
                loss = mean_loss(model, x)  # noqa: B023
            scaler.scale(loss).backward()
            return loss

        c()
        scaler.step(optimizer, closure=c)
        scaler.update()


@LOOPS.add(
    "scaler-call-order",
    may="exploding-gradients loss-spike clip-before-unscale nan-not-overflow step-outside-scaler",
)
def a_closure_by_position() -> None:
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters())
    scaler = scaling(init_scale=64.0)
    for _ in range(10):
        x = torch.randn(8, 16)

        def c():
            optimizer.zero_grad()
            with amp():
                loss = mean_loss(model, x)  # noqa: B023
            scaler.scale(loss).backward()
            return loss

        c()
        scaler.step(optimizer, c)
        scaler.update()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
