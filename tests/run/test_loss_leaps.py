"""A loss that leaps: a spike, or a new task that is learned like the first one."""

from __future__ import annotations

import math

import pytest

from ampwatch.run.trends import ANEW_STEPS, LossTrend

TASK_STEPS = 100


def learned(step: int) -> float:
    """From 1 down to a hundredth."""
    return 0.01 + math.exp(-0.1 * step)


def seen(*losses: float) -> LossTrend:
    trend = LossTrend()
    for step, loss in enumerate(losses):
        trend.see(step, loss, 1)
    return trend


FIRST_TASK = [learned(step) for step in range(TASK_STEPS)]


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_a_new_task_is_no_spike(factor: float) -> None:
    assert seen(*FIRST_TASK, *(factor * learned(step) for step in range(TASK_STEPS))).spike is None


def test_it_is_not_told_before_it_is_known_what_it_is() -> None:
    assert seen(*FIRST_TASK, 1.0).spike is None


@pytest.mark.parametrize(
    "after",
    [
        [learned(TASK_STEPS)] * ANEW_STEPS,  # one strange batch
        [6.0] * ANEW_STEPS,  # the run is lost
        [1.5 + step / 2 for step in range(ANEW_STEPS)],  # and gets worse
    ],
)
def test_a_leap_to_the_first_level_is_a_spike_where_nothing_is_learned_anew(
    after: list[float],
) -> None:
    spike = seen(*FIRST_TASK, 1.0, *after).spike
    assert spike is not None
    assert spike.span.first == TASK_STEPS


def test_a_leap_beyond_the_first_level_is_told_at_once() -> None:
    spike = seen(*FIRST_TASK, 50.0).spike
    assert spike is not None
    assert (spike.step, spike.value) == (TASK_STEPS, 50.0)
