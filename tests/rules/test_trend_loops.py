"""Losses that leap, gradients that grow or fade."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import F, Loops, Now, amp, mean_loss, mlp, scaling, train

LOOPS = Loops()


@LOOPS.add("loss-spike", may="exploding-gradients lone-overflow")
def one_strange_batch() -> None:
    train(steps=100, loss=lambda model, x: mean_loss(model, x * (60 if Now.step == 70 else 1)))


@LOOPS.add("loss-spike", may="exploding-gradients")
def one_step_too_far() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(100):
        for g in optimizer.param_groups:
            g["lr"] = 30.0 if step == 60 else 1e-2
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@LOOPS.add()
def noise_of_single_samples() -> None:
    train(steps=300, data=lambda step: torch.randn(1, 16))


@LOOPS.add()
def a_term_in_every_10th_step() -> None:
    train(
        steps=200,
        loss=lambda model, x: (
            mean_loss(model, x)
            + (20 * model(x).float().pow(2).mean() + 5 if Now.step % 10 == 9 else 0)
        ),
    )


@LOOPS.add()
def a_large_start() -> None:
    train(steps=60, loss=lambda model, x: mean_loss(model, x * (60 if Now.step < 2 else 1)))


@LOOPS.add()
def a_loss_of_either_sign() -> None:
    train(steps=100, loss=lambda model, x: model(x).float().mean())


@LOOPS.add("exploding-gradients", may="loss-spike forward-overflow nan-not-overflow")
def a_rate_too_large() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.9)
    x = torch.randn(32, 16) * 3
    for _ in range(100):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()


@LOOPS.add("exploding-gradients", may="loss-spike forward-overflow nan-not-overflow")
def a_rate_a_little_too_large() -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.13)
    x = torch.randn(64, 8) * 3
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()


@LOOPS.add(
    "exploding-gradients",
    may="loss-spike forward-overflow nan-not-overflow scale-collapse scale-below-one",
)
def a_recurrence_that_grows() -> None:
    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = nn.Linear(16, 16)
            self.o = nn.Linear(16, 1)

        def forward(self, x):
            h = x
            for _ in range(10):
                h = self.h(h)
            return self.o(h)

    model = R()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    scaler = scaling(init_scale=16.0)
    for step in range(120):
        if step >= 40:
            with torch.no_grad():
                model.h.weight.mul_(1.03)
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("exploding-gradients", may="loss-spike forward-overflow nan-not-overflow")
def gradients_that_grow_and_are_clipped() -> None:
    # gradients explode but clipped after unscale
    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = nn.Linear(16, 16)
            self.o = nn.Linear(16, 1)

        def forward(self, x):
            h = x
            for _ in range(10):
                h = self.h(h)
            return self.o(h)

    model = R()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    for step in range(120):
        if step >= 40:
            with torch.no_grad():
                model.h.weight.mul_(1.03)
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = model(x).float().pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@LOOPS.add()
def large_gradients_that_stay() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(100):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True) * 50)
        loss.backward()
        optimizer.step()


@LOOPS.add("vanishing-gradients")
def twelve_sigmoids() -> None:
    model = nn.Sequential(
        *[x for _ in range(12) for x in (nn.Linear(16, 16), nn.Sigmoid())], nn.Linear(16, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(60):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()


@LOOPS.add("vanishing-gradients", may="gradient-underflow")
def twelve_sigmoids_in_float16() -> None:
    model = nn.Sequential(
        *[x for _ in range(12) for x in (nn.Linear(16, 16), nn.Sigmoid())], nn.Linear(16, 1)
    )
    train(model=model, steps=60, scaler=scaling(init_scale=2.0**24))


@LOOPS.add("vanishing-gradients")
def a_recurrence_that_fades() -> None:
    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Linear(16, 16)
            self.h = nn.Linear(16, 16)
            self.o = nn.Linear(16, 1)

        def forward(self, x):
            h = self.i(x)
            for _ in range(25):
                h = torch.sigmoid(self.h(h) * 0.5)
            return self.o(h)

    model = R()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(60):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()


@LOOPS.add("vanishing-gradients")
def small_weights() -> None:
    model = nn.Sequential(
        *[x for _ in range(10) for x in (nn.Linear(16, 16), nn.Tanh())], nn.Linear(16, 1)
    )
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(0.1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(50):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()


@LOOPS.add()
def eight_relus() -> None:
    model = nn.Sequential(
        *[x for _ in range(8) for x in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 1)
    )
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    train(model=model, steps=60, data=lambda step: torch.randn(32, 32))


@LOOPS.add("lone-overflow", may="loss-spike exploding-gradients")
def one_batch_with_targets_too_large() -> None:
    train(
        steps=120,
        loss=lambda model, x: F.mse_loss(
            model(x).float(), x.mean(1, keepdim=True) * (3e5 if Now.step == 70 else 1)
        ),
    )


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
