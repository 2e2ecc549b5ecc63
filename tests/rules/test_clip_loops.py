"""Clipping before and after unscaling, by torch's functions and by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from watched_loops import INF, Loops, amp, mean_loss, mlp, scaling, train

LOOPS = Loops()


@LOOPS.add("clip-before-unscale", may="weights-not-moving vanishing-gradients")
def by_norm() -> None:
    train(
        before_step=lambda step, model, optimizer, scaler: nn.utils.clip_grad_norm_(
            model.parameters(), 0.5
        )
    )


@LOOPS.add("clip-before-unscale", may="weights-not-moving vanishing-gradients")
def by_value() -> None:
    train(
        before_step=lambda step, model, optimizer, scaler: nn.utils.clip_grad_value_(
            model.parameters(), 0.5
        )
    )


@LOOPS.add("clip-before-unscale", may="weights-not-moving vanishing-gradients")
def by_hand_to_a_value() -> None:
    def h(step, model, optimizer, scaler):
        for p in model.parameters():
            p.grad.clamp_(-0.1, 0.1)

    train(before_step=h)


@LOOPS.add("clip-before-unscale", may="weights-not-moving vanishing-gradients")
def by_hand_to_a_norm() -> None:
    def h(step, model, optimizer, scaler):
        n = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters()))
        for p in model.parameters():
            p.grad.mul_(min(1.0, 1.0 / (float(n) + 1e-6)))

    train(before_step=h)


@LOOPS.add("clip-before-unscale", may="weights-not-moving vanishing-gradients")
def one_layer() -> None:
    train(
        before_step=lambda step, model, optimizer, scaler: nn.utils.clip_grad_norm_(
            model[0].parameters(), 0.5
        )
    )


@LOOPS.add("clip-before-unscale", may="weights-not-moving vanishing-gradients")
def and_then_unscaled() -> None:
    def h(step, model, optimizer, scaler):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.unscale_(optimizer)

    train(before_step=h)


@LOOPS.add("clip-before-unscale", may="weights-not-moving vanishing-gradients")
def after_accumulation() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    scaler = scaling()
    for step in range(160):
        x = torch.randn(8, 16)
        with amp():
            loss = mean_loss(model, x) / 4
        scaler.scale(loss).backward()
        if step % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


@LOOPS.add()
def the_norm_is_only_measured() -> None:  # max_norm INF: only measures
    train(
        before_step=lambda step, model, optimizer, scaler: nn.utils.clip_grad_norm_(
            model.parameters(), INF
        )
    )


@LOOPS.add()
def the_limit_is_multiplied_by_the_scale() -> None:  # clip limit multiplied by scale: correct
    train(
        before_step=lambda step, model, optimizer, scaler: nn.utils.clip_grad_norm_(
            model.parameters(), 1.0 * scaler.get_scale()
        )
    )


@LOOPS.add()
def by_value_after_unscaling() -> None:
    def h(step, model, optimizer, scaler):
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), 0.5)

    train(before_step=h)


@LOOPS.add()
def by_hand_after_unscaling() -> None:
    def h(step, model, optimizer, scaler):
        scaler.unscale_(optimizer)
        for p in model.parameters():
            p.grad.clamp_(-0.1, 0.1)

    train(before_step=h)


@LOOPS.add()
def gradients_divided_by_the_number_of_micro_batches() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    scaler = scaling(init_scale=1024.0)
    for step in range(160):
        x = torch.randn(8, 16)
        with amp():
            loss = mean_loss(model, x)
        scaler.scale(loss).backward()
        if step % 4 == 3:
            for p in model.parameters():
                p.grad.div_(4)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
