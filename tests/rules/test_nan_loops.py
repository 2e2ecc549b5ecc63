"""NaN by mathematics, and constants that are 0 in float16."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import F, Loops, amp, mean_loss, mlp, scaling, train

LOOPS = Loops()


@LOOPS.add("nan-not-overflow", may="scale-collapse")
def root_of_zero() -> None:
    train(
        loss=lambda model, x: torch.sqrt(
            (model(x).float() - model(x).float().detach()).pow(2)
        ).mean(),
        steps=40,
    )


@LOOPS.add("nan-not-overflow", may="scale-collapse")
def zero_times_log_of_zero() -> None:
    def loss(model, x):
        p = torch.relu(model(x)).float()
        return -(p * torch.log(p)).mean()

    train(loss=loss, steps=40)


@LOOPS.add("nan-not-overflow", may="scale-collapse dead-gradients")
def arc_cosine_beyond_one() -> None:
    train(
        loss=lambda model, x: torch.acos(
            F.cosine_similarity(model[0](x).float(), model[0](x).float(), dim=1) * 1.0001
        ).mean(),
        steps=30,
    )


@LOOPS.add("nan-not-overflow", may="scale-collapse loss-spike")
def power_of_a_negative_number() -> None:
    train(loss=lambda model, x: (model(x).float()).pow(0.5).mean() + 1, steps=30)


@LOOPS.add("nan-not-overflow", may="scale-collapse")
def deviation_of_one_value() -> None:
    # std of a single element -> NAN (unbiased)
    train(loss=lambda model, x: (model(x).float() / model(x).float().std(1)).mean(), steps=30)


@LOOPS.add("nan-not-overflow", may="scale-collapse")
def the_gradient_of_a_branch_not_taken() -> None:
    # the where trick: forward fine, backward NAN
    def loss(model, x):
        h = model(x).float()
        h = h - h.detach()  # zeros
        return torch.where(h > 0, h.sqrt(), h).mean() + mean_loss(model, x)

    train(loss=loss, steps=40)


@LOOPS.add("nan-not-overflow", may="weights-not-moving")
def log_of_a_negative_number_in_float32() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(40):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        loss = torch.log(model(x) + (100 if step < 20 else -100)).mean()
        loss.backward()
        optimizer.step()


@LOOPS.add("nan-not-overflow", may="weights-not-moving")
def log_of_a_negative_number_in_bfloat16() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(40):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        with amp(torch.bfloat16):
            loss = torch.log(model(x).float() + (100 if step < 20 else -100)).mean()
        loss.backward()
        optimizer.step()


@LOOPS.add("nan-not-overflow", may="scale-collapse")
def mean_of_nothing() -> None:
    def loss(model, x):
        out = model(x).float()
        keep = x[:, 0] > (0 if loss.k < 20 else 100)
        return out[keep].pow(2).mean()

    loss.k = 0

    def xx(step):
        loss.k = step
        return torch.randn(16, 16)

    train(loss=loss, data=xx, steps=40)


@LOOPS.add("nan-not-overflow", may="scale-collapse")
def now_and_then() -> None:
    def loss(model, x):
        return (
            mean_loss(model, x)
            + torch.sqrt(model(x).float().mean() + (1 if loss.k % 15 else -50)) * 0.01
        )

    loss.k = 1

    def xx(step):
        loss.k = step + 1
        return torch.randn(16, 16)

    train(loss=loss, data=xx, steps=60)


@LOOPS.add("nan-not-overflow", may="scale-collapse epsilon-underflow forward-overflow")
def log_of_a_softmax() -> None:
    model = mlp(16, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        x = torch.randn(16, 16)
        y = x[:, :4].argmax(1)
        optimizer.zero_grad()
        with amp():
            loss = F.nll_loss(
                torch.log(F.softmax(model(x) * (100 if step % 10 == 9 else 1), dim=1)).float(), y
            )
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_of_a_layer_norm_by_hand() -> None:
    class N(nn.Module):
        def forward(self, h):
            h = h.half()
            mu = h.mean(-1, keepdim=True)
            var = ((h - mu) ** 2).mean(-1, keepdim=True)
            return (h - mu) * torch.rsqrt(var + 1e-8)

    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), N(), nn.Linear(32, 1))

    def xx(step):
        z = torch.randn(16, 16)
        if step % 8 == 7:
            with torch.no_grad():
                model[0].bias.fill_(-1.0)
            z[0] = 0
        return z

    train(model=model, data=xx, steps=40)


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_of_a_log_of_a_softmax() -> None:
    # log(softmax + 1e-8) in fp16
    train(
        loss=lambda model, x: (
            -torch.log(
                F.softmax(torch.cat([model(x) * 0, model(x) * 0 + 30], 1).half(), 1)[:, 0] + 1e-8
            )
            .mean()
            .float()
        ),
        steps=30,
    )


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_of_a_range() -> None:
    train(
        loss=lambda model, x: (
            lambda h: ((h - h.min()) / (h.max() - h.min() + 1e-8)).mean().float()
        )((model(x) * 0 + 1).half()),
        steps=30,
    )


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_of_normalize() -> None:
    def loss(model, x):
        h = model[1](model[0](x))
        h = h * (torch.arange(h.shape[0])[:, None] > 0)
        return model[2](F.normalize(h.half(), dim=-1)).float().pow(2).mean()

    train(loss=loss, steps=30)


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_of_a_norm() -> None:
    def loss(model, x):
        h = (model[0](x) * 0).half()
        return model[2](h / (h.norm(dim=-1, keepdim=True) + 1e-12)).float().pow(2).mean()

    train(loss=loss, steps=30)


@LOOPS.add("epsilon-underflow", may="scale-collapse dead-gradients")
def guard_that_is_a_tensor() -> None:
    eps = torch.tensor(1e-8)

    def loss(model, x):
        h = (model[0](x) * 0).half()
        return (h / (h.abs().sum(-1, keepdim=True) + eps)).float().pow(2).mean()

    train(loss=loss, steps=30)


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_of_a_dice_loss() -> None:
    # dice loss: 2*inter+eps / (union+eps) with all zero
    def loss(model, x):
        p = (torch.relu(model(x) - 100)).half()
        t = torch.zeros_like(p)
        e = 1e-8
        return (1 - (2 * (p * t).sum() + e) / (p.sum() + t.sum() + e)).float()

    train(loss=loss, steps=30)


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_by_clamping() -> None:
    def loss(model, x):
        p = torch.relu(model(x) - 100).half()
        return -torch.log(p.clamp(min=1e-8)).mean().float()

    train(loss=loss, steps=30)


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_of_a_reciprocal() -> None:
    def loss(model, x):
        p = torch.relu(model(x) - 100).half()
        return (1 / (p + 1e-8)).mean().float()

    train(loss=loss, steps=30)


@LOOPS.add("epsilon-underflow", may="nan-not-overflow scale-collapse forward-overflow")
def guard_of_one_minus_a_probability() -> None:
    # log(1-p+eps), p=1
    def loss(model, x):
        p = torch.sigmoid(model(x) + 30).half()
        return -torch.log(1 - p + 1e-8).mean().float()

    train(loss=loss, steps=30)


@LOOPS.add("epsilon-underflow", may="scale-collapse dead-gradients")
def guard_of_a_deviation() -> None:
    def loss(model, x):
        h = (model[0](x) * 0 + 3).half()
        return ((h - h.mean(0)) / (h.std(0) + 1e-8)).pow(2).mean().float()

    train(loss=loss, steps=30)


@LOOPS.add(may="dead-gradients")
def a_guard_that_is_large_enough() -> None:
    def loss(model, x):
        h = (model[0](x)).half()
        return ((h - h.mean(0)) / (h.std(0) + 1e-3)).pow(2).mean().float()

    train(loss=loss, steps=30)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
