"""Every way to write a loop: records that are right, and weights that are the same to the bit."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from training_loops import Case, RecordingHost, assert_same_weights, network, train

from ampwatch.probe.detail import Spacing

DYNAMIC = Case()
adam = functools.partial(torch.optim.Adam, lr=1e-3)
fused_adam = functools.partial(torch.optim.Adam, lr=1e-3, fused=True)
fused_adamw = functools.partial(torch.optim.AdamW, lr=1e-3, fused=True)
fused_sgd = functools.partial(torch.optim.SGD, lr=1e-3, fused=True)
CLIP = {"max_norm": 0.5}

CASES = {
    "dynamic": DYNAMIC,
    "adam": DYNAMIC.but(optimizer=adam),
    "static": DYNAMIC.but(scaler={"growth_interval": 10**9, "init_scale": 2.0**9}),
    "off": DYNAMIC.but(scaler={"enabled": False}),
    "no-scaler": DYNAMIC.but(scaler=None, dtype=torch.bfloat16),
    "bf16": DYNAMIC.but(dtype=torch.bfloat16),
    "every-step-skipped": DYNAMIC.but(
        steps=40, scaler={"init_scale": 2.0**100, "backoff_factor": 0.999}
    ),
    "unscale": DYNAMIC.but(unscale=True),
    "clip": DYNAMIC.but(unscale=True, clip=CLIP),
    "clip-by-largest": DYNAMIC.but(unscale=True, clip={"max_norm": 0.1, "norm_type": math.inf}),
    "clip-some": DYNAMIC.but(unscale=True, clip=CLIP, clip_some=True),
    "clip-scaled": DYNAMIC.but(clip=CLIP),
    "clip-without-scaler": DYNAMIC.but(scaler=None, clip=CLIP),
    "clip-with-scaler-off": DYNAMIC.but(scaler={"enabled": False}, clip=CLIP),
    "accumulate": DYNAMIC.but(accumulate=3),
    "accumulate-and-clip": DYNAMIC.but(steps=200, accumulate=2, unscale=True, clip=CLIP),
    "accumulate-without-scaler": DYNAMIC.but(accumulate=2, scaler=None, clip=CLIP),
    "fused-adam": DYNAMIC.but(optimizer=fused_adam),
    "fused-adam-unscale": DYNAMIC.but(optimizer=fused_adam, unscale=True, clip=CLIP),
    "fused-adamw": DYNAMIC.but(optimizer=fused_adamw),
    "fused-sgd": DYNAMIC.but(optimizer=fused_sgd),
    "fused-without-scaler": DYNAMIC.but(optimizer=fused_adam, scaler=None),
    "batch-norm-dropout": DYNAMIC.but(model=functools.partial(network, batch_norm=True)),
    "scale-0": DYNAMIC.but(steps=30, scaler={"init_scale": 0.0}),
}
WITH_SKIPS = {
    "dynamic",
    "adam",
    "static",
    "every-step-skipped",
    "clip",
    "accumulate",
    "fused-adam",
    "fused-adam-unscale",
    "fused-sgd",
}


@pytest.mark.parametrize("name", CASES)
def test_records_and_weights_are_those_of_the_loop(name: str, recorded: RecordingHost) -> None:
    case = CASES[name]
    plain = train(case, hooked=False)
    hooked = train(case, hooked=True)
    steps = recorded.steps

    assert_same_weights(plain.weights, hooked.weights)
    assert [record.step for record in steps] == list(range(case.steps))
    assert recorded.skips == plain.skips
    assert recorded.notices == []
    if name in WITH_SKIPS:
        assert plain.skips, "the loop was to overflow"

    active = case.scaler is not None and case.scaler.get("enabled", True)
    for index, record in enumerate(steps):
        assert record.skipped is ((index in plain.skips) if case.scaler is not None else None)
        assert record.loss == pytest.approx(plain.losses[index], rel=1e-6, nan_ok=True)
        assert record.losses == case.accumulate
        assert record.scale == (plain.scales[index] if active else None)
        if plain.scales[index] == 0:
            continue  # nothing can be divided by it
        norm = plain.norms[index]
        if math.isfinite(norm):
            assert record.grad_norm == pytest.approx(norm, rel=1e-6)
            assert record.nonfinite_tensors == 0
            if plain.clipped:
                assert record.clipped_norm == pytest.approx(plain.clipped[index], rel=1e-5)
        else:
            assert record.grad_norm is not None
            assert not math.isfinite(record.grad_norm)
            assert record.nonfinite_tensors
            assert record.nonfinite_values
            assert record.origin is not None


@pytest.mark.parametrize("name", ["dynamic", "fused-adam", "clip", "batch-norm-dropout"])
def test_detail_steps_at_every_step_change_no_bit(
    name: str, recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(CASES[name], hooked=False)
    monkeypatch.setattr(Spacing, "due", lambda self, step: True)
    hooked = train(CASES[name], hooked=True)
    assert_same_weights(plain.weights, hooked.weights)
    assert len(recorded.stats) == CASES[name].steps
    assert recorded.skips == plain.skips


def test_a_clip_of_scaled_gradients_is_a_fact(recorded: RecordingHost) -> None:
    train(CASES["clip-scaled"].but(steps=3), hooked=True)
    assert all("clip-while-scaled:limit=0.5" in record.facts for record in recorded.steps)


@pytest.mark.parametrize("name", ["clip", "clip-without-scaler", "dynamic", "accumulate", "off"])
def test_a_healthy_loop_has_no_facts(name: str, recorded: RecordingHost) -> None:
    train(CASES[name].but(steps=5), hooked=True)
    # While a scale finds its level, its overflows are followed into backward.
    told = {each for each in recorded.facts if ",kind=overflow," not in each}
    assert told == set()


def test_random_generators_are_left_alone(recorded: RecordingHost) -> None:
    train(CASES["batch-norm-dropout"].but(steps=30), hooked=False)
    after = torch.get_rng_state()
    train(CASES["batch-norm-dropout"].but(steps=30), hooked=True)
    assert torch.equal(after, torch.get_rng_state())
