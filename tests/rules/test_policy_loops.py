"""Which scaler there is, whether it is the right one, and what goes along with it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watched_loops import F, Loops, amp, mean_loss, mlp, scaling, train

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


@LOOPS.add("fp16-without-scaler", may="gradient-underflow weights-not-moving dead-gradients")
def float16_without_a_scaler() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()


@LOOPS.add(
    "fp16-without-scaler",
    may="gradient-underflow weights-not-moving dead-gradients vanishing-gradients",
)
def float16_with_a_scaler_that_is_off() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(enabled=False)
    for _ in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x) * 1e-6
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("fp16-without-scaler", may="gradient-underflow")
def float16_without_a_scaler_in_accumulation() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(120):
        x = torch.randn(8, 16)
        with amp():
            loss = mean_loss(model, x) / 4
        loss.backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@LOOPS.add("fp16-without-scaler", may="gradient-underflow weights-not-moving")
def float16_without_a_scaler_and_a_small_loss() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    for _ in range(40):
        x = torch.randn(8, 3, 8, 8)
        y = torch.randint(0, 5, (8,))
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y) * 1e-4
        loss.backward()
        optimizer.step()


@LOOPS.add("scaler-disabled fp16-without-scaler", may="gradient-underflow")
def a_device_that_is_not_there() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("scaler-disabled")
def a_device_that_is_not_there_in_float32() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = torch.cuda.amp.GradScaler()
    for _ in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("deprecated-amp-api")
def old_names() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = torch.cpu.amp.GradScaler(init_scale=1024.0)
    for _ in range(60):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with torch.cpu.amp.autocast(dtype=torch.float16):
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("bf16-with-scaler")
def bfloat16_with_a_scaler() -> None:
    train(
        dtype=torch.bfloat16,
        before_step=lambda step, model, optimizer, scaler: (
            scaler.unscale_(optimizer),
            nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        ),
    )


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
