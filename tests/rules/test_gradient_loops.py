"""Gradients that are lost to underflow, or dead, and zeros that are neither."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD
from watched_loops import INF, F, Loops, Now, amp, mean_loss, mlp, scaled_down, scaling, train, wide

LOOPS = Loops()


@LOOPS.add("gradient-underflow scale-collapse", may="weights-not-moving")
def underflow_after_a_burst() -> None:
    model = mlp(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    scaler = scaling()
    for step in range(150):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True)) * 1e-5
        if 40 <= step < 80:
            loss = loss * INF
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("gradient-underflow", may="weights-not-moving")
def underflow_at_a_small_first_scale() -> None:
    train(
        mlp(32, 64),
        100,
        scaled_down(1e-5),
        scaling(init_scale=1.0),
        data=wide,
        optimizer=SGD,
        rate=1e-1,
    )


@LOOPS.add("gradient-underflow", may="weights-not-moving vanishing-gradients")
def underflow_behind_one_layer() -> None:
    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(32, 64)
            self.b = nn.Linear(64, 64)
            self.c = nn.Linear(64, 1)

        def forward(self, x):
            return self.c(torch.relu(self.b(torch.relu(self.a(x))) * 1e-4))

    model = N()
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    scaler = scaling(init_scale=1.0)
    for _ in range(100):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add()
def zeros_by_relu() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    with torch.no_grad():
        model[0].bias.sub_(2.5)
    train(model=model, steps=60)


@LOOPS.add()
def zeros_by_an_embedding() -> None:
    model = nn.Sequential(nn.Embedding(2000, 16), nn.Flatten(), nn.Linear(16 * 4, 5))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling()
    for _ in range(60):
        x = torch.randint(0, 2000, (8, 4))
        y = torch.randint(0, 5, (8,))
        optimizer.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("dead-gradients")
def a_detached_layer() -> None:
    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 32)
            self.b = nn.Linear(32, 1)

        def forward(self, x):
            return self.b(torch.relu(self.a(x)).detach())

    train(model=N(), steps=60)


@LOOPS.add("dead-gradients")
def units_that_are_never_active() -> None:
    model = mlp()
    with torch.no_grad():
        model[0].bias.sub_(100)
    train(model=model, steps=60)


@LOOPS.add("dead-gradients")
def a_head_times_0() -> None:
    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 32)
            self.b = nn.Linear(32, 1)
            self.c = nn.Linear(16, 1)

        def forward(self, x):
            return self.b(torch.relu(self.a(x))) + 0 * self.c(x)

    train(model=N(), steps=60)


@LOOPS.add("dead-gradients", error="No inf checks")
def an_optimizer_without_gradients() -> None:
    a, b = mlp(), mlp()
    oa, ob = torch.optim.Adam(a.parameters(), 1e-3), torch.optim.Adam(b.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(60):
        x = torch.randn(32, 16)
        oa.zero_grad()
        ob.zero_grad()
        with amp():
            loss = mean_loss(a, x) + (mean_loss(b, x) if step < 5 else 0)
        scaler.scale(loss).backward()
        scaler.step(oa)
        scaler.step(ob)
        scaler.update()


@LOOPS.add("dead-gradients")
def a_rounded_activation() -> None:
    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 32)
            self.b = nn.Linear(32, 1)

        def forward(self, x):
            return self.b(torch.relu(self.a(x)).round())

    model = N()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = mean_loss(model, x)
        loss.backward()
        optimizer.step()


@LOOPS.add("dead-gradients")
def an_unused_layer_in_a_short_run() -> None:
    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 32)
            self.b = nn.Linear(32, 1)
            self.unused = nn.Linear(3, 3)

        def forward(self, x):
            return self.b(torch.relu(self.a(x)))

    train(model=N(), steps=30)


@LOOPS.add()
def biases_before_batch_norm() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(60):
        x = torch.randn(16, 3, 8, 8)
        y = torch.randint(0, 5, (16,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


@LOOPS.add()
def a_branch_that_begins_at_0() -> None:
    # residual branch zero-initialised: inner weights have zero gradient at first step only
    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 16)
            self.b = nn.Linear(16, 16)
            nn.init.zeros_(self.b.weight)
            self.o = nn.Linear(16, 1)

        def forward(self, x):
            return self.o(x + self.b(torch.relu(self.a(x))))

    train(model=N(), steps=60)


@LOOPS.add()
def heads_by_turns() -> None:
    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 32)
            self.b = nn.Linear(32, 1)
            self.c = nn.Linear(32, 1)

        def forward(self, x):
            return (self.b if Now.step % 2 else self.c)(torch.relu(self.a(x)))

    train(
        model=N(),
        steps=80,
    )


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
