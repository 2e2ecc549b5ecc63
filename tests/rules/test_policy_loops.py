"""Which scaler there is, and whether it is the right one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import Adam
from torch.utils.checkpoint import checkpoint
from watched_loops import F, Loops, amp, mean_loss, mlp, scaled_down, scaling, train

LOOPS = Loops()


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
    train(
        loss=scaled_down(1e-6),
        scaler=scaling(enabled=False),
        data=lambda _: torch.randn(8, 16),
        optimizer=Adam,
    )


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
    train(scaler=torch.amp.GradScaler("cuda"), data=lambda _: torch.randn(8, 16), optimizer=Adam)


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


@LOOPS.add("fp16-without-scaler", may="weights-not-moving gradient-underflow")
def a_float16_model_without_a_scaler() -> None:
    model = mlp().half()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(40):
        x = torch.randn(32, 16).half()
        optimizer.zero_grad()
        F.mse_loss(model(x), x.mean(1, keepdim=True)).backward()
        optimizer.step()


@LOOPS.add()
def a_loss_scaled_by_hand() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        (loss * 1024).backward()
        for parameter in model.parameters():
            parameter.grad.div_(1024)
        optimizer.step()


@LOOPS.add()
def a_loss_scaled_by_hand_with_checkpointing() -> None:
    body = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    model = nn.ModuleList([body, nn.Linear(16, 1)])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(30):
        x = torch.randn(16, 16)
        optimizer.zero_grad()
        with amp():
            out = model[1](checkpoint(body, x, use_reentrant=False))
            loss = F.mse_loss(out.float(), x.mean(1, keepdim=True))
        (loss * 4096).backward()
        for parameter in model.parameters():
            parameter.grad.div_(4096)
        optimizer.step()


@LOOPS.add("fp16-without-scaler")
def a_weight_of_a_loss_is_no_scale() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        (loss * 100.0).backward()
        optimizer.step()


@LOOPS.add()
def a_scaler_of_ones_own() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scale, good = 2.0**15, 0
    for _ in range(100):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        (loss * scale).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            scale, good = scale / 2, 0
            continue
        for gradient in gradients:
            gradient.div_(scale)
        optimizer.step()
        good += 1
        if good % 50 == 0:
            scale *= 2


@LOOPS.add()
def a_float16_model_with_float32_masters() -> None:
    model = mlp().half()
    masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, 0.05, momentum=0.9)
    for _ in range(60):
        x = torch.randn(32, 16)
        loss = F.mse_loss(model(x.half()).float(), x.mean(1, keepdim=True))
        (loss * 1024.0).backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad, parameter.grad = parameter.grad.float() / 1024.0, None
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters(), strict=True):
                parameter.copy_(master)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
