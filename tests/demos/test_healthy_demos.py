"""Where nothing is wrong, nothing worse than ``info`` is found.

Short runs; ``tests/bench/false_alarms.py`` trains all of these for 2,000 steps, and more.
"""

from __future__ import annotations

import pytest
from healthy_runs import AS_THEY_ARE, NEAR_MISSES, Healthy, examined

from ampwatch.rules.telling import is_healthy

STEPS = {
    "linear": 800,
    "digits": 110,
    "chargpt": 40,
    "gan": 300,
    "forward": 200,
    "underflow": 450,
    "float32": 500,
    "float32_schedule": 1500,
}
NEAR_STEPS = {
    "linear": 300,
    "gan": 120,
    "forward": 150,
    "underflow": 300,
    "float32": 300,
    "float32_schedule": 1300,
}
FAST_IN_BFLOAT16 = {"digits": 60, "chargpt": 30}


def near_steps(healthy: Healthy) -> int | None:
    """How long a test can afford it; float16 on a CPU is slow."""
    if healthy.dtype == "bfloat16":
        return FAST_IN_BFLOAT16.get(healthy.name) or NEAR_STEPS.get(healthy.name)
    return NEAR_STEPS.get(healthy.name)


def alarms(healthy: Healthy, steps: int) -> list[str]:
    session = examined(healthy, steps)
    bad = [each for each in session.findings if each.severity != "info"]
    assert is_healthy(session.run, session.findings) == (not bad)
    return [f"{each.rule}: {each.message} (from step {each.first_step})" for each in bad]


@pytest.mark.parametrize("healthy", AS_THEY_ARE, ids=str)
def test_a_healthy_training_is_called_healthy(healthy: Healthy) -> None:
    assert alarms(healthy, STEPS[healthy.name]) == []


@pytest.mark.parametrize("healthy", [each for each in NEAR_MISSES if near_steps(each)], ids=str)
def test_a_training_near_it_is_healthy_too(healthy: Healthy) -> None:
    steps = near_steps(healthy)
    assert steps is not None
    assert alarms(healthy, steps) == []


def test_what_is_watched_over_would_be_seen() -> None:
    # The underflow demo without its scaler learns nothing, which is what it is there to show.
    broken = Healthy("underflow", "without a scaler", scaler="off")
    assert any(each.startswith("fp16-without-scaler") for each in alarms(broken, 100))
