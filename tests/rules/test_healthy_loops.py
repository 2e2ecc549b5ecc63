"""Loops without a mistake, of the kinds people write: none of them has an error or a warning."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from watched_loops import NAN, F, Loops, amp, mean_loss, mlp, scaling, train

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


@LOOPS.add()
def one_step() -> None:
    train(steps=1)


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


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
