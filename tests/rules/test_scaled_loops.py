"""Gradients that carry the scale where they must not, or lack it where they must."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import F, Loops, amp, mean_loss, mlp, scaling

LOOPS = Loops()


@LOOPS.add("unscaled-backward", may="gradient-underflow weights-not-moving")
def the_loss_was_never_scaled() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss)
        loss.backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("unscaled-backward", may="gradient-underflow weights-not-moving")
def scaled_in_the_first_step_only() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for step in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        if step == 0:
            loss = scaler.scale(loss)
        loss.backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("unscaled-backward", may="gradient-underflow weights-not-moving")
def a_second_loss_now_and_then_unscaled() -> None:
    model = mlp(16, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for step in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            out = model(x).float()
            loss = out.pow(2).mean()
            reg = (out - 1).pow(2).mean()
        scaler.scale(loss).backward(retain_graph=True)
        if step % 8 == 7:
            reg.backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("unscaled-backward", may="gradient-underflow weights-not-moving")
def one_of_two_micro_batches_unscaled() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling()
    for step in range(80):
        x = torch.randn(8, 16)
        with amp():
            loss = mean_loss(model, x)
        (scaler.scale(loss) if step % 2 else loss).backward()
        if step % 2:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


@LOOPS.add("unscaled-backward", may="gradient-underflow weights-not-moving")
def the_second_networks_loss_unscaled() -> None:
    g = mlp(8, 32, 2)
    d = mlp(2, 32, 1)
    og = torch.optim.Adam(g.parameters(), 1e-3)
    od = torch.optim.Adam(d.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    bce = F.binary_cross_entropy_with_logits
    for _ in range(60):
        z = torch.randn(32, 8)
        real = torch.randn(32, 2)
        od.zero_grad()
        with amp():
            ld = bce(d(real), torch.ones(32, 1)) + bce(d(g(z).detach()), torch.zeros(32, 1))
        scaler.scale(ld).backward()
        scaler.step(od)
        og.zero_grad()
        with amp():
            lg = bce(d(g(z)), torch.ones(32, 1))
        lg.backward()
        scaler.step(og)
        scaler.update()


@LOOPS.add("unscaled-backward", may="gradient-underflow weights-not-moving")
def a_penalty_on_the_weights_unscaled() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(40):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        (1e-4 * sum(p.abs().sum() for p in model.parameters())).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add(
    "step-outside-scaler",
    may="exploding-gradients loss-spike nan-not-overflow forward-overflow weights-not-moving",
)
def a_plain_step_with_adam() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        optimizer.step()


@LOOPS.add("step-outside-scaler", may="exploding-gradients loss-spike")
def a_step_too_many() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.step()


@LOOPS.add("step-outside-scaler")
def the_second_optimizer_past_the_scaler() -> None:
    a, b = mlp(), mlp()
    oa, ob = torch.optim.Adam(a.parameters(), 1e-3), torch.optim.Adam(b.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for _ in range(60):
        x = torch.randn(32, 16)
        oa.zero_grad()
        ob.zero_grad()
        with amp():
            la, lb = mean_loss(a, x), mean_loss(b, x)
        scaler.scale(la + lb).backward()
        scaler.step(oa)
        ob.step()
        scaler.update()


@LOOPS.add("step-outside-scaler")
def unscaled_and_then_a_plain_step() -> None:  # unscaled, but never checked
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for _ in range(60):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        optimizer.step()
        scaler.update()


@LOOPS.add("fp16-parameters", may="fp16-without-scaler", error="FP16")
def half_weights_and_clipping() -> None:
    model = mlp().half()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(10):
        x = torch.randn(8, 16).half()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.mean(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("fp16-parameters", error="FP16")
def one_half_layer() -> None:
    model = mlp()
    model[0].half()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(10):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("step-outside-scaler")
def unscaled_and_once_a_plain_step() -> None:  # of the right size: no more than worth knowing
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for step in range(60):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if step == 30:
            optimizer.step()
        else:
            scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
