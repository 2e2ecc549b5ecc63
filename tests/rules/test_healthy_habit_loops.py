"""Habits that look like mistakes and are none: schedules, averages, steps left out."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from watched_loops import NAN, F, Loops, amp, mean_loss, mlp, scaling

LOOPS = Loops()


@LOOPS.add()
def a_schedule_without_skips() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=101)
    scaler = scaling(init_scale=1024.0)
    for _ in range(100):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()


@LOOPS.add("scale-settling")
def a_schedule_that_waits_for_skips() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=30)
    scaler = scaling(init_scale=2.0**26)
    for _ in range(80):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        a = scaler.get_scale()
        scaler.update()
        if scaler.get_scale() >= a:
            schedule.step()


@LOOPS.add("scale-settling")
def a_schedule_that_moves_every_epoch() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    scaler = scaling(init_scale=2.0**22)
    for _ in range(5):
        for _ in range(12):
            x = torch.randn(32, 16)
            optimizer.zero_grad()
            with amp():
                loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        schedule.step()


@LOOPS.add()
def an_average_of_the_weights() -> None:
    model = mlp()
    ema = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling(init_scale=4096.0)
    for step in range(80):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            for a, b in zip(ema.parameters(), model.parameters(), strict=False):
                a.lerp_(b, 0.01)
            if step % 20 == 0:
                with amp():
                    ema(x)


@LOOPS.add()
def a_gradient_penalty() -> None:
    g = mlp(8, 32, 2)
    d = mlp(2, 32, 1, nn.Tanh)
    og = torch.optim.Adam(g.parameters(), 1e-4)
    od = torch.optim.Adam(d.parameters(), 1e-4)
    scaler = scaling(init_scale=1024.0)
    for _ in range(60):
        real = torch.randn(32, 2)
        z = torch.randn(32, 8)
        for _ in range(2):
            od.zero_grad()
            with amp():
                fake = g(z).detach()
                ld = d(fake).mean() - d(real).mean()
            mix = (real * 0.5 + fake.float() * 0.5).requires_grad_()
            with amp():
                out = d(mix).sum()
            (gr,) = torch.autograd.grad(scaler.scale(out), mix, create_graph=True)
            gr = gr / scaler.get_scale()
            with amp():
                ld = ld + 10 * ((gr.float().norm(dim=1) - 1) ** 2).mean()
            scaler.scale(ld).backward()
            scaler.step(od)
            scaler.update()
        og.zero_grad()
        with amp():
            lg = -d(g(z)).mean()
        scaler.scale(lg).backward()
        scaler.step(og)
        scaler.update()


@LOOPS.add()
def a_layer_that_is_thawed() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(120):
        if step == 60:
            model[0].requires_grad_(True)
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def bad_batches_left_out_by_hand() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(60):
        x = torch.randn(32, 16)
        if step % 10 == 5:
            x[0, 0] = NAN
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True))
        if not torch.isfinite(loss):
            continue
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def a_list_of_losses() -> None:
    model = mlp(16, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for _ in range(60):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            out = model(x)
            a = F.mse_loss(out[:, :2].float(), x[:, :2])
            b = 0.1 * F.cross_entropy(out, x[:, :4].argmax(1))
        for q in scaler.scale([a, b]):
            q.backward(retain_graph=True)
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def steps_left_out_for_their_norm() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(60):
        x = torch.randn(16, 16) * (50 if step % 20 == 10 else 1)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        n = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if n < 5:
            scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def evaluation_between_steps() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(60):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        model.train()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            model.eval()
            with torch.no_grad(), amp():
                mean_loss(model, x)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
