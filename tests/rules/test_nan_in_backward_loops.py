"""NaN that mathematics makes in backward now and then, beside a loss that is finite; and losses
that are NaN or inf for no overflow's sake."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from watched_loops import F, Loops, amp, findings_of, mlp, scaling

LOOPS = Loops()
SEED = 5


def distances(bad: set[int], steps: int = 120, init: float = 256.0) -> list[int]:
    """A loss of distances between rows, two of which are the same at some steps: the derivative of
    a root at 0 is inf there, times 0. Returns the steps that were skipped."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = scaling(init_scale=init)
    skipped = []
    for step in range(steps):
        x = torch.randn(16, 8)
        if step in bad:
            x[3] = x[4]
        optimizer.zero_grad()
        with amp():
            out = model(x)
        out = out.float()
        apart = (out[:8] - out[1:9]).pow(2).sum(1).sqrt()
        scaler.scale((apart - 1).pow(2).mean()).backward()
        if not all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()):
            skipped.append(step)
        scaler.step(optimizer)
        scaler.update()
    return skipped


def by_chance(steps: int) -> set[int]:
    generator = torch.Generator().manual_seed(SEED)
    return {step for step in range(steps) if torch.rand((), generator=generator) < 0.12}


@LOOPS.add("nan-not-overflow")
def equal_rows_by_chance() -> None:
    distances(by_chance(120))


@LOOPS.add("nan-not-overflow")
def equal_rows_in_every_seventh_step() -> None:
    distances(set(range(3, 120, 7)))


@LOOPS.add("nan-not-overflow", may="scale-below-one")
def equal_rows_and_a_scale_that_settles() -> None:
    distances(by_chance(120), init=2.0**24)


def lengths(epsilon: float, dtype: torch.dtype) -> None:
    """Lengths of rows, one of which is 0 in every fifth step, with a guard under the root."""
    model = nn.Linear(8, 8, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = scaling(init_scale=16.0)
    for step in range(60):
        x = torch.randn(16, 8)
        if step % 5 == 3:
            x[3] = 0.0
        optimizer.zero_grad()
        with amp():
            out = model(x)
        squares = out.to(dtype).square().sum(1)
        scaler.scale(((squares + epsilon).sqrt().float() - 1).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("epsilon-underflow", may="scale-below-one scale-collapse growth-interval-too-short")
def a_guard_under_a_root_that_float16_has_no_room_for() -> None:
    lengths(1e-8, torch.float16)


@LOOPS.add()
def a_guard_under_a_root_in_float32() -> None:
    lengths(1e-8, torch.float32)


@LOOPS.add()
def a_guard_under_a_root_that_float16_has_room_for() -> None:
    lengths(1e-4, torch.float16)


@LOOPS.add("nan-not-overflow")
def a_batch_whose_targets_are_all_ignored() -> None:
    embedding, head = nn.Embedding(20, 16), nn.Linear(16, 20)
    optimizer = torch.optim.Adam([*embedding.parameters(), *head.parameters()], 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(60):
        tokens = torch.randint(1, 20, (8, 6))
        targets = tokens.clone() if step % 20 != 15 else torch.full_like(tokens, -100)
        optimizer.zero_grad()
        with amp():
            scores = head(embedding(tokens)).flatten(0, 1)
        loss = F.cross_entropy(scores.float(), targets.flatten(), ignore_index=-100)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nan-not-overflow", may="scale-settling")
def a_mean_over_nothing() -> None:
    model = mlp(outputs=2)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(60):
        x = torch.randn(16, 16)
        there = torch.full((16,), step % 20 != 15)
        optimizer.zero_grad()
        with amp():
            out = model(x).float()
        loss = F.mse_loss(out[:, 0], x.mean(1)) + (out[:, 1] - x[:, 0])[there].pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nan-not-overflow")
def sequences_too_short_for_their_labels() -> None:
    model = nn.Linear(8, 6)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(40):
        length = 3 if step % 13 == 9 else 10
        labels = torch.randint(1, 6, (4, 5))
        optimizer.zero_grad()
        with amp():
            scores = model(torch.randn(length, 4, 8))
        lengths = torch.full((4,), length), torch.full((4,), 5)
        loss = F.ctc_loss(scores.float().log_softmax(-1), labels, *lengths)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def masked_scores(smoothing: float) -> None:
    """Classes that are masked with -inf, as they may be where no target is one of them."""
    model = nn.Linear(16, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = scaling(init_scale=1024.0)
    absent = torch.arange(10) >= 7

    def loss_of(x: Tensor) -> Tensor:
        with amp():
            scores = model(x).masked_fill(absent, float("-inf"))
        return F.cross_entropy(scores.float(), x[:, :7].argmax(1), label_smoothing=smoothing)

    for _ in range(30):
        optimizer.zero_grad()
        scaler.scale(loss_of(torch.randn(16, 16))).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("nan-not-overflow", may="scale-collapse")
def labels_smoothed_over_masked_classes() -> None:
    masked_scores(0.1)


@LOOPS.add()
def masked_classes() -> None:
    masked_scores(0.0)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)


def test_such_skips_are_no_part_of_loss_scaling() -> None:
    skipped: list[int] = []
    findings = findings_of(lambda: skipped.extend(distances(by_chance(120))))
    assert len(skipped) > 8
    assert set(findings) == {"nan-not-overflow"}  # no settling, no lone ones, no scale below 1
    told = findings["nan-not-overflow"]
    assert (told.first_step, told.last_step, told.count) == (skipped[0], skipped[-1], len(skipped))
    assert f"{len(skipped)} steps were skipped for NaN in the gradients" in told.message


def test_their_period_is_told() -> None:
    findings = findings_of(equal_rows_in_every_seventh_step)
    assert findings["nan-not-overflow"].evidence["period"] == 7
    assert "growth-interval-too-short" not in findings


def test_the_overflows_beside_them_are_still_explained() -> None:
    def loop() -> None:
        distances({60, 61, 75, 90}, init=2.0**24)

    findings = findings_of(loop)
    assert {"nan-not-overflow", "scale-settling"} <= set(findings)
    assert (findings["scale-settling"].last_step or 0) < 60
