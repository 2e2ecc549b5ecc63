"""Several networks, optimizers or scalers, and nothing wrong with them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import F, Loops, amp, mean_loss, mlp, scaling, train

LOOPS = Loops()


@LOOPS.add()
def a_sparse_embedding_with_an_optimizer_of_its_own() -> None:
    model = nn.Sequential(nn.Embedding(200, 16, sparse=True), nn.Flatten(), nn.Linear(16 * 4, 50))
    optimizer = torch.optim.SparseAdam(model[0].parameters(), 1e-3)
    o2 = torch.optim.Adam(model[2].parameters())
    scaler = scaling()
    for _ in range(60):
        x = torch.randint(0, 200, (8, 4))
        y = torch.randint(0, 50, (8,))
        optimizer.zero_grad()
        o2.zero_grad()
        with amp():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.step(o2)
        scaler.update()


@LOOPS.add()
def two_scalers() -> None:
    a, b = mlp(), mlp()
    oa, ob = torch.optim.Adam(a.parameters(), 1e-3), torch.optim.Adam(b.parameters(), 1e-3)
    sa, sb = scaling(init_scale=1024.0), scaling(init_scale=256.0)
    for _ in range(60):
        x = torch.randn(32, 16)
        for model, optimizer, scaler in ((a, oa, sa), (b, ob, sb)):
            optimizer.zero_grad()
            with amp():
                loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


@LOOPS.add()
def a_gan_with_two_updates() -> None:
    g = mlp(8, 32, 2)
    d = mlp(2, 32, 1)
    og = torch.optim.Adam(g.parameters(), 1e-3)
    od = torch.optim.Adam(d.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    bce = F.binary_cross_entropy_with_logits
    for _ in range(100):
        z = torch.randn(32, 8)
        real = torch.randn(32, 2)
        og.zero_grad()
        with amp():
            lg = bce(d(g(z)), torch.ones(32, 1))
        scaler.scale(lg).backward()
        scaler.step(og)
        scaler.update()
        od.zero_grad()
        with amp():
            ld = bce(d(real), torch.ones(32, 1)) + bce(d(g(z).detach()), torch.zeros(32, 1))
        scaler.scale(ld).backward()
        scaler.step(od)
        scaler.update()


@LOOPS.add()
def a_gan_with_five_steps_to_one() -> None:
    g = mlp(8, 32, 2)
    d = mlp(2, 32, 1)
    og = torch.optim.Adam(g.parameters(), 1e-3)
    od = torch.optim.Adam(d.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    bce = F.binary_cross_entropy_with_logits
    for step in range(150):
        z = torch.randn(32, 8)
        real = torch.randn(32, 2)
        od.zero_grad()
        with amp():
            ld = bce(d(real), torch.ones(32, 1)) + bce(d(g(z).detach()), torch.zeros(32, 1))
        scaler.scale(ld).backward()
        scaler.step(od)
        if step % 5 == 4:
            og.zero_grad()
            with amp():
                lg = bce(d(g(z)), torch.ones(32, 1))
            scaler.scale(lg).backward()
            scaler.step(og)
        scaler.update()


@LOOPS.add()
def a_gan_whose_images_are_not_detached() -> None:
    g = mlp(8, 32, 2)
    d = mlp(2, 32, 1)
    og = torch.optim.Adam(g.parameters(), 1e-3)
    od = torch.optim.Adam(d.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    bce = F.binary_cross_entropy_with_logits
    for _ in range(80):
        z = torch.randn(32, 8)
        real = torch.randn(32, 2)
        od.zero_grad()
        with amp():
            ld = bce(d(real), torch.ones(32, 1)) + bce(d(g(z)), torch.zeros(32, 1))
        scaler.scale(ld).backward()
        scaler.step(od)
        scaler.update()
        og.zero_grad()
        with amp():
            lg = bce(d(g(z)), torch.ones(32, 1))
        scaler.scale(lg).backward()
        scaler.step(og)
        scaler.update()


@LOOPS.add()
def a_second_network_in_float32() -> None:
    a, b = mlp(), mlp()
    oa, ob = torch.optim.Adam(a.parameters(), 1e-3), torch.optim.Adam(b.parameters(), 1e-3)
    scaler = scaling(init_scale=64.0)
    for _ in range(60):
        x = torch.randn(32, 16)
        oa.zero_grad()
        ob.zero_grad()
        with amp():
            la = mean_loss(a, x)
        lb = mean_loss(b, x)
        scaler.scale(la).backward()
        scaler.step(oa)
        scaler.update()
        lb.backward()
        ob.step()


@LOOPS.add()
def a_mixture_of_experts() -> None:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.g = nn.Linear(16, 4)
            self.e = nn.ModuleList([nn.Linear(16, 1) for _ in range(4)])

        def forward(self, x):
            w = self.g(x).softmax(-1)
            return sum(w[:, i : i + 1] * e(x) for i, e in enumerate(self.e))

    train(model=M(), steps=60)


@LOOPS.add()
def new_models_with_scalers_of_their_own() -> None:
    for _ in range(4):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        scaler = scaling(init_scale=1024.0)
        for _ in range(15):
            x = torch.randn(32, 16)
            optimizer.zero_grad()
            with amp():
                loss = mean_loss(model, x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


@LOOPS.add()
def an_expert_that_is_asked_now_and_then() -> None:
    router = nn.Linear(16, 4)
    experts = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])
    optimizer = torch.optim.Adam([*router.parameters(), *experts.parameters()], 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(90):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with amp():
            weights = router(x).float().softmax(1)
            chosen, out = weights.argmax(1), torch.zeros(32, 16)
            for number, expert in enumerate(experts):
                mine = chosen == number
                if mine.any() and (number < 3 or step % 10 == 0):
                    out[mine] = expert(x[mine]).float() * weights[mine, number : number + 1]
            loss = F.mse_loss(out, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
