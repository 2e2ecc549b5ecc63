"""What bad steps leave behind: spoilt statistics and gradients that are never cleared."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import NAN, F, Loops, amp, mean_loss, mlp, scaling

LOOPS = Loops()


@LOOPS.add("batchnorm-statistics", may="forward-overflow nonfinite-input loss-spike")
def statistics_of_images() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 3, 8, 8) * (3e5 if step == 12 else 1)
        y = torch.randint(0, 5, (8,))
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add(
    "batchnorm-statistics", may="forward-overflow nonfinite-input loss-spike nan-not-overflow"
)
def statistics_without_a_scaler() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(40):
        x = torch.randn(8, 8)
        if step == 12:
            x[0] = NAN
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        if torch.isfinite(loss):
            optimizer.step()


@LOOPS.add(
    "batchnorm-statistics", may="forward-overflow nonfinite-input loss-spike nan-not-overflow"
)
def statistics_of_a_batch_left_out() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 8) * (1e6 if step == 12 else 1)
        optimizer.zero_grad()
        with amp():
            loss = model(x).float().pow(2).mean()
        if not torch.isfinite(loss):
            continue
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add(
    "batchnorm-statistics", may="forward-overflow nonfinite-input loss-spike nan-not-overflow"
)
def statistics_of_instances() -> None:
    model = nn.Sequential(
        nn.Conv1d(3, 8, 3),
        nn.InstanceNorm1d(8, track_running_stats=True),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 6, 5),
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(8, 3, 8) * (3e6 if step == 12 else 1)
        y = torch.randint(0, 5, (8,))
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("stale-gradients scale-collapse", may="scale-settling")
def never_cleared_with_adam() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(60):
        x = torch.randn(64, 32)
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True) * 10)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("stale-gradients scale-collapse", may="scale-settling exploding-gradients loss-spike")
def cleared_after_good_steps_only() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(60):
        x = torch.randn(64, 32)
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True) * (1e6 if step == 20 else 1))
        scaler.scale(loss).backward()
        a = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= a:
            optimizer.zero_grad()


@LOOPS.add(
    "stale-gradients scale-collapse",
    may="scale-settling exploding-gradients loss-spike dead-gradients",
)
def one_of_two_optimizers_never_cleared() -> None:
    a, b = mlp(), mlp()
    oa, ob = torch.optim.Adam(a.parameters(), 1e-3), torch.optim.Adam(b.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(60):
        x = torch.randn(32, 16)
        oa.zero_grad()
        with amp():
            loss = mean_loss(a, x) + mean_loss(b, x * (1 if step != 20 else 300)) * (
                1 if step != 20 else 1e4
            )
        scaler.scale(loss).backward()
        scaler.step(oa)
        scaler.step(ob)
        scaler.update()


@LOOPS.add("stale-gradients scale-collapse", may="scale-settling")
def never_cleared_in_accumulation() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    scaler = scaling()
    for step in range(160):
        x = torch.randn(64, 32)
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True) * 10)
        scaler.scale(loss).backward()
        if step % 2:
            scaler.step(optimizer)
            scaler.update()


@LOOPS.add("stale-gradients scale-collapse", may="scale-settling")
def another_model_is_cleared() -> None:
    model = mlp(32, 64)
    other = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    scaler = scaling()
    for _ in range(60):
        x = torch.randn(64, 32)
        other.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True) * 10)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
