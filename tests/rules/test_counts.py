"""How often a finding was seen, and how bad it is called, does not hang on the number of optimizers
or on how many detail steps a machine could afford."""

from __future__ import annotations

import pytest
import torch
from watched_loops import amp, findings_of, mean_loss, mlp, scaling

from ampwatch.record import StepRecord, TensorStats
from ampwatch.rules import RULE_BY_ID, Finding
from ampwatch.run import Run

STEPS = 30


def two_networks(dtype: torch.dtype, plain_steps: bool = False) -> None:
    """Two networks that learn from one batch, each with an optimizer of its own."""
    networks = mlp(), mlp()
    optimizers = [torch.optim.Adam(network.parameters(), 1e-3) for network in networks]
    scaler = scaling(init_scale=64.0)
    for _ in range(STEPS):
        x = torch.randn(16, 16)
        for network, optimizer in zip(networks, optimizers, strict=True):
            optimizer.zero_grad()
            with amp(dtype):
                loss = mean_loss(network, x)
            scaler.scale(loss).backward()
        for optimizer in optimizers:
            if plain_steps:
                optimizer.step()
            else:
                scaler.step(optimizer)
        if not plain_steps:
            scaler.update()


@pytest.mark.parametrize(
    ("rule", "plain_steps", "dtype"),
    [
        ("bf16-with-scaler", False, torch.bfloat16),
        ("step-outside-scaler", True, torch.float16),
    ],
)
def test_steps_are_counted_and_not_records(
    rule: str, plain_steps: bool, dtype: torch.dtype
) -> None:
    told = findings_of(lambda: two_networks(dtype, plain_steps))[rule]
    assert (told.first_step, told.last_step, told.count) == (0, STEPS - 1, STEPS)
    assert f"{STEPS} steps" in told.message


def after_unscale(plain: set[int], bad: int = -1) -> Finding:
    """A loop that unscales by hand, and then steps at some steps without the scaler."""

    def loop() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        scaler = scaling(init_scale=64.0)
        for step in range(STEPS):
            x = torch.randn(16, 16)
            optimizer.zero_grad()
            with amp():
                loss = mean_loss(model, x)
            if step == bad:
                loss = loss * 1e30  # finite, and what comes back to float16 is not
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if step in plain:
                optimizer.step()
            else:
                scaler.step(optimizer)
            scaler.update()

    return findings_of(loop)["step-outside-scaler"]


def test_a_plain_step_after_unscale_is_as_bad_as_what_it_lets_through() -> None:
    once = after_unscale({20})
    always = after_unscale(set(range(STEPS)))
    lets_through = after_unscale({20}, bad=20)
    assert (once.severity, once.count) == ("info", 1)
    assert (always.severity, always.count) == ("warning", STEPS)
    assert lets_through.severity == "error"
    assert "in 1 step optimizer.step() was called directly" in once.message


def flushed_at(details: dict[int, bool], steps: int = 400) -> list[Finding]:
    """What is said of underflow where half of a gradient is flushed at some detail steps."""
    run = Run()
    for step in range(steps):
        run.add(StepRecord(step, float(step), loss=1.0, grad_norm=1.0, dtype="float16"))
        if step in details:
            zeros, largest = (50, 2.0**-20) if details[step] else (0, 1.0)
            run.add(
                TensorStats(step, ("w",), (largest,), (largest,), (zeros,), (0,), (100,), scale=1.0)
            )
    return list(RULE_BY_ID["gradient-underflow"].check(run))


def test_underflow_that_stays_is_told_with_few_detail_steps_and_with_many() -> None:
    assert flushed_at({1: True, 6: True})
    assert flushed_at(dict.fromkeys(range(1, 400, 3), True))
    late = {step: step > 200 for step in range(1, 400, 3)}
    assert flushed_at(late)


def test_underflow_that_comes_now_and_then_is_not_told_for_many_detail_steps() -> None:
    rare = {step: step % 99 == 1 for step in range(1, 400, 2)}
    assert sum(rare.values()) > 2
    assert flushed_at(rare) == []
