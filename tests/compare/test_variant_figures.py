"""From tracks to the figures of the table."""

from __future__ import annotations

import math

import pytest
from made_runs import ended, falling, track

from ampwatch.compare.figures import FAILED, IMPOSSIBLE, final_loss, flushed, rows
from ampwatch.compare.track import Track


def test_times_are_medians_and_ratios_are_paired_by_round() -> None:
    base, other = Track(), Track()
    base.blocks = [0.1, 0.1, 0.4, 0.1, None]  # the machine was busy in the third round,
    other.blocks = [0.2, 0.3, 0.8, 0.2, 0.2]  # for both
    first, second = rows([ended("fp32", base), ended("bf16", other)], "fp32")
    assert first.seconds == pytest.approx(0.1)
    assert first.ratio == 1.0
    assert second.seconds == pytest.approx(0.2)
    # Ratios 2, 3, 2, 2: sorted 2, 2, 2, 3.
    assert second.ratio == pytest.approx(2.0)
    assert second.ratio_low == pytest.approx(2.0)
    assert second.ratio_high == pytest.approx(2.25)


def test_losses_memory_and_skips() -> None:
    base = track(falling(1.0, 0.1), metrics={"saved_bytes": 1000.0})
    other = track(falling(1.0, 0.3), metrics={"saved_bytes": 550.0}, skipped=[0, 7])
    first, second = rows([ended("fp32", base), ended("fp16-dynamic", other)], "fp32")
    assert (first.first_loss, first.difference, first.memory_ratio) == (1.0, 0.0, 1.0)
    assert second.final_loss == pytest.approx(0.3)
    assert second.difference == pytest.approx(0.2)
    assert (second.memory, second.memory_kind) == (550.0, "saved")
    assert second.memory_ratio == pytest.approx(0.55)
    assert second.skipped == 2
    assert second.steps == 43


def test_the_devices_own_figure_comes_first() -> None:
    made = track(falling(), device="cuda:0", metrics={"saved_bytes": 10.0, "peak_bytes": 99.0})
    (row,) = rows([ended("fp32", made)], "fp32")
    assert (row.memory, row.memory_kind) == (99.0, "peak")


def test_the_final_loss_is_the_mean_of_the_last_ten() -> None:
    assert final_loss([100.0] * 5 + [1.0, 3.0] * 5) == 2.0
    assert final_loss([4.0, 2.0]) == 3.0
    assert final_loss([]) is None


def test_the_spread_is_that_of_the_last_ten() -> None:
    (row,) = rows([ended("fp32", track([100.0] * 13 + [1.0, 3.0] * 5))], "fp32")
    assert row.spread == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_final_loss_that_is_not_finite_stays_so(bad: float) -> None:
    found = final_loss([1.0] * 10 + [bad] + [1.0] * 5)
    assert found is not None
    assert not math.isfinite(found)


def test_flushed_is_what_is_zero_here_and_not_in_the_baseline() -> None:
    base = {1: (20, 100), 12: (20, 100), 35: (0, 50)}
    here = {1: (60, 100), 12: (20, 100), 77: (100, 100)}
    # Steps 1 and 12: 40 zeros more, of 160 values that are not 0 in the baseline.
    assert flushed(here, base) == 40 / 160
    assert flushed(base, base) == 0.0
    assert flushed({1: (10, 100)}, base) == 0.0, "fewer zeros are none that were flushed"
    assert flushed({77: (1, 2)}, base) is None
    assert flushed({1: (60, 70)}, base) is None, "other gradients"
    assert flushed({1: (100, 100)}, {1: (100, 100)}) is None


def test_without_a_baseline_nothing_is_compared() -> None:
    made = track(falling(), metrics={"saved_bytes": 10.0})
    lost = ended("fp32", Track(), IMPOSSIBLE, error="why")
    first, second = rows([lost, ended("bf16", made)], "fp32")
    assert (first.status, first.error, first.steps) == (IMPOSSIBLE, "why", 0)
    assert second.seconds is not None
    assert (second.ratio, second.memory_ratio, second.difference) == (None, None, None)


def test_a_run_that_failed_at_once_has_a_row_too() -> None:
    (row,) = rows([ended("fp32", Track(), FAILED, error="no")], "fp32")
    assert (row.status, row.error, row.steps, row.seconds) == (FAILED, "no", 0, None)
