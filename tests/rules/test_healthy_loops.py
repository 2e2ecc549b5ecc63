"""Loops without a mistake, of the kinds people write: none of them has an error or a warning."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import F, Loops, amp, mean_loss, mlp, scaling, train

LOOPS = Loops()


@LOOPS.add()
def a_convolution_with_batch_norm() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    scaler = scaling()
    for _ in range(60):
        x = torch.randn(16, 3, 8, 8)
        y = torch.randint(0, 5, (16,))
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def a_transformer_with_clipping() -> None:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), 2
    )
    head = nn.Linear(16, 4)
    p = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(p, 1e-3)
    scaler = scaling()
    for _ in range(40):
        x = torch.randn(8, 6, 16)
        y = torch.randint(0, 4, (8, 6))
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(head(model(x)).transpose(1, 2), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(p, 1.0)
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def an_embedding() -> None:
    model = nn.Sequential(nn.Embedding(200, 16), nn.Flatten(), nn.Linear(16 * 4, 50))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(60):
        x = torch.randint(0, 200, (8, 4))
        y = torch.randint(0, 50, (8,))
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def accumulation() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling()
    for step in range(120):
        x = torch.randn(16, 16)
        with amp():
            loss = F.mse_loss(model(x), x.mean(1, keepdim=True)) / 4
        scaler.scale(loss).backward()
        if step % 4 == 3:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


@LOOPS.add()
def accumulation_with_an_incomplete_end() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for _ in range(5):
        for step in range(10):
            x = torch.randn(16, 16)
            with amp():
                loss = mean_loss(model, x) / 4
            scaler.scale(loss).backward()
            if step % 4 == 3 or step == 9:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()


@LOOPS.add()
def lbfgs_with_a_closure() -> None:
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
    x = torch.randn(64, 16)
    y = x.mean(1, keepdim=True)
    for _ in range(30):

        def c():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(c)


@LOOPS.add()
def lbfgs_that_has_converged() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1)
    x = torch.randn(64, 4)
    y = x.mean(1, keepdim=True)
    for _ in range(40):

        def c():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(c)


@LOOPS.add()
def bfloat16() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(100):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp(torch.bfloat16):
            loss = F.mse_loss(model(x), x.mean(1, keepdim=True))
        loss.backward()
        optimizer.step()


@LOOPS.add()
def float32_until_it_converges() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(64, 4)
    y = x @ torch.tensor([[1.0], [2.0], [3.0], [-1.0]])
    for _ in range(600):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()


@LOOPS.add()
def a_small_network_that_overfits() -> None:
    model = mlp(4, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scaler = scaling()
    x = torch.randn(16, 4)
    y = torch.randn(16, 1)
    for _ in range(800):
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def one_step() -> None:
    train(steps=1)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
