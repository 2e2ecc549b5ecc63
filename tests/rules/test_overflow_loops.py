"""Activations beyond float16."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import F, Loops, Now, amp, mean_loss, mlp, scaling, train

LOOPS = Loops()


@LOOPS.add("forward-overflow", may="scale-collapse exploding-gradients")
def beyond_float16_in_the_loss() -> None:
    train(loss=lambda model, x: (model(x) * 5e4 * 3).pow(2).mean(), steps=40)


@LOOPS.add("forward-overflow", may="scale-collapse")
def beyond_float16_in_a_convolution() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 16, 5),
    )
    with torch.no_grad():
        model[2].weight.mul_(1e5)
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    scaler = scaling(init_scale=1024.0)
    for _ in range(40):
        x = torch.randn(8, 3, 8, 8)
        y = torch.randint(0, 5, (8,))
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("forward-overflow", may="scale-collapse")
def beyond_float16_in_a_residual() -> None:
    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 16)
            self.b = nn.Linear(16, 16)
            self.o = nn.Linear(16, 1)

        def forward(self, x):
            x = x + self.a(x) * 4e4
            x = x + self.b(x) * 4
            return self.o(x)

    train(model=R(), steps=40)


@LOOPS.add("forward-overflow", may="scale-collapse")
def beyond_float16_in_attention_scores() -> None:
    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(16, 16)
            self.k = nn.Linear(16, 16)
            self.v = nn.Linear(16, 1)

        def forward(self, x):
            return ((self.q(x) * 300) @ (self.k(x) * 300).transpose(1, 2)).softmax(-1) @ self.v(x)

    model = A()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for _ in range(40):
        x = torch.randn(4, 6, 16)
        optimizer.zero_grad()
        with amp():
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("forward-overflow", may="scale-collapse loss-spike")
def beyond_float16_in_a_sum() -> None:
    # sum over many elements in fp16 overflows
    train(
        loss=lambda model, x: (model(x).half() - 100).pow(2).sum().float() * 1e-3,
        steps=40,
        data=lambda step: torch.randn(64, 16),
    )


@LOOPS.add("forward-overflow", may="scale-collapse batchnorm-statistics nan-not-overflow")
def beyond_float16_in_the_square_of_a_norm() -> None:
    # hand-written RMS norm: x.pow(2) overflows
    class N(nn.Module):
        def forward(self, h):
            return h / torch.sqrt(h.pow(2).mean(-1, keepdim=True) + 1e-3)

    model = nn.Sequential(nn.Linear(16, 32), N(), nn.Linear(32, 1))
    with torch.no_grad():
        model[0].weight.mul_(3e3)
    train(model=model, steps=40)


@LOOPS.add("forward-overflow", may="scale-collapse")
def beyond_float16_in_a_recurrence() -> None:
    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = nn.Linear(16, 16)
            self.o = nn.Linear(16, 1)

        def forward(self, x):
            h = x
            for _ in range(12):
                h = self.h(h) * 6
            return self.o(h)

    train(model=R(), steps=40)


@LOOPS.add("forward-overflow", may="scale-collapse loss-spike exploding-gradients")
def beyond_float16_after_a_while() -> None:
    # weights grow in training until activation overflows
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0)
    scaler = scaling(init_scale=16.0)
    for step in range(60):
        with torch.no_grad():
            model[0].weight.mul_(1.4)
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            loss = (model(x) / (1.4**step)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add(
    "forward-overflow",
    may="fp16-without-scaler nan-not-overflow loss-spike exploding-gradients weights-not-moving",
)
def beyond_float16_without_a_scaler() -> None:
    def mm():
        return None

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(40):
        x = torch.randn(8, 16) * (1e6 if step == 20 else 1)
        optimizer.zero_grad()
        with amp():
            loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()


@LOOPS.add("forward-overflow", may="scale-collapse")
def beyond_float16_in_one_of_two_losses() -> None:
    model = mlp(16, 32, 2)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for _ in range(40):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp():
            out = model(x)
            a = out[:, 0].float().pow(2).mean()
            b = (out[:, 1] * 6e4 * 4).pow(2).mean()
        scaler.scale(a + b).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("forward-overflow", may="scale-collapse loss-spike")
def beyond_float16_in_an_exponential() -> None:
    train(
        steps=40,
        loss=lambda model, x: (
            (model(x) + (12 if Now.step % 20 == 19 else 0)).half().exp().float().mean()
        ),
    )


@LOOPS.add("forward-overflow", may="scale-collapse")
def beyond_float16_by_a_small_temperature() -> None:
    # contrastive: temperature 1e-4
    model = nn.Linear(16, 32)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for _ in range(30):
        x = torch.randn(16, 16)
        optimizer.zero_grad()
        with amp():
            z = model(x)
            loss = F.cross_entropy((z @ z.t()) / 1e-5, torch.arange(16))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("forward-overflow", may="scale-collapse")
def weights_beyond_float16() -> None:
    model = nn.Sequential(nn.ConvTranspose1d(4, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(80, 1))
    with torch.no_grad():
        model[0].weight.mul_(1e6)
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    scaler = scaling(init_scale=1024.0)
    for _ in range(30):
        x = torch.randn(8, 4, 8)
        optimizer.zero_grad()
        with amp():
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("forward-overflow", may="scale-collapse batchnorm-statistics")
def beyond_float16_before_a_layer_norm() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
    with torch.no_grad():
        model[0].weight.mul_(1e6)
    train(model=model, steps=30)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
