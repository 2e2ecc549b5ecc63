"""A series keeps what matters of a run of any length in fixed memory."""

from __future__ import annotations

import math
import random
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from ampwatch.history import BUCKETS, RAW, History

pytestmark = pytest.mark.filterwarnings("error")


def filled(values: list[float], first: int = 0, every: int = 1) -> History:
    history = History()
    for number, value in enumerate(values):
        history.add(first + number * every, value)
    return history


def by_hand(
    steps: list[int], values: list[float], first: int, last: int, columns: int
) -> tuple[list[float], list[float], list[bool]]:
    """What ``sample`` promises, one value at a time."""
    lo, hi, bad = [math.nan] * columns, [math.nan] * columns, [False] * columns
    for step, value in zip(steps, values, strict=True):
        if first <= step <= last:
            part = (step - first) * columns // (last - first + 1)
            if not math.isfinite(value):
                bad[part] = True
            else:
                lo[part] = value if math.isnan(lo[part]) else min(lo[part], value)
                hi[part] = value if math.isnan(hi[part]) else max(hi[part], value)
    return lo, hi, bad


def test_an_empty_series_has_nothing() -> None:
    history = History()
    assert (history.version, history.last, history.last_step, history.first_step) == (0,) + (
        None,
    ) * 3
    assert history.limits(0, 100) is None
    sampled = history.sample(0, 100, 7)
    assert np.isnan(sampled.lo).all()
    assert np.isnan(sampled.hi).all()
    assert not sampled.bad.any()


def test_the_latest_value_is_known_although_it_is_nan() -> None:
    history = filled([1.0, math.nan], first=5)
    assert history.first_step == 5
    assert history.last_step == 6
    assert history.last is not None
    assert math.isnan(history.last)
    assert history.limits(0, 10) == (1.0, 1.0)


@pytest.mark.parametrize("columns", [1, 3, 50, 999, 1000, 1001, 5000])
def test_recent_steps_are_exact_in_any_window(columns: int) -> None:
    numbers = random.Random(columns)
    pool = [math.nan, math.inf, -math.inf, 0.0, 1e308, -1e308, 5e-324]
    values = [
        numbers.choice(pool) if numbers.random() < 0.2 else numbers.gauss(0, 1) for _ in range(900)
    ]
    steps = sorted(numbers.randrange(1000) for _ in values)  # some repeat, some are missing
    history = History()
    for step, value in zip(steps, values, strict=True):
        history.add(step, value)
    for first, last in ((0, 999), (100, 350), (500, 500), (-50, 2000)):
        sampled = history.sample(first, last, columns)
        lo, hi, bad = by_hand(steps, values, first, last, columns)
        np.testing.assert_array_equal(sampled.lo, lo)
        np.testing.assert_array_equal(sampled.hi, hi)
        np.testing.assert_array_equal(sampled.bad, bad)


def test_the_last_thousand_steps_of_a_long_run_are_exact() -> None:
    values = [float(number * 7919 % 1009) for number in range(100_000)]
    history = filled(values)
    sampled = history.sample(99_000, 99_999, 1000)
    np.testing.assert_array_equal(sampled.lo, values[-1000:])
    np.testing.assert_array_equal(sampled.hi, values[-1000:])


@pytest.mark.parametrize("every", [1, 3])
def test_no_spike_is_lost_in_a_long_run(every: int) -> None:
    count, columns = 60_000, 150
    spikes = {137: 50.0, 30_001: 70.0, 59_990: -9.0, 31_111: math.inf, 4_444: math.nan}
    history = filled([spikes.get(number, 1.0) for number in range(count)], every=every)
    last = (count - 1) * every
    sampled = history.sample(0, last, columns)
    found_high = {value for value in sampled.hi.tolist() if value != 1.0}
    found_low = {value for value in sampled.lo.tolist() if value != 1.0}
    assert found_high == {50.0, 70.0}
    assert found_low == {-9.0}
    for number, value in spikes.items():
        part = number * every * columns // (last + 1)
        around = slice(max(part - 1, 0), part + 2)  # a bucket counts as its middle step
        if math.isfinite(value):
            assert value in (*sampled.hi[around], *sampled.lo[around])
        else:
            assert sampled.bad[around].any()
    assert sampled.bad.sum() == 2
    assert history.limits(0, last) == (-9.0, 70.0)


def test_limits_are_exact_over_the_whole_run() -> None:
    numbers = random.Random(3)
    values = [numbers.gauss(0, 10) for _ in range(20_000)]
    history = filled(values)
    assert history.limits(0, len(values) - 1) == (min(values), max(values))


def test_every_column_of_a_long_run_has_a_value() -> None:
    for count in (RAW * 2, RAW * 2 + 1, BUCKETS, BUCKETS + RAW * 2, 50_000):
        history = filled([1.0] * count)
        sampled = history.sample(0, count - 1, 600)
        assert np.isfinite(sampled.lo).all(), count


def test_an_old_window_narrower_than_a_bucket_still_shows_it() -> None:
    history = filled([2.5] * 200_000)
    assert history.limits(10_001, 10_002) == (2.5, 2.5)


def test_a_run_resumed_at_a_late_step_is_as_fine_as_one_from_zero() -> None:
    resumed = filled([float(number % 50) for number in range(30_000)], first=5_000_000)
    plain = filled([float(number % 50) for number in range(30_000)])
    late, early = resumed.sample(5_000_000, 5_029_999, 300), plain.sample(0, 29_999, 300)
    np.testing.assert_array_equal(late.lo, early.lo)
    np.testing.assert_array_equal(late.hi, early.hi)
    assert resumed.first_step == 5_000_000


def test_versions_grow_with_every_value() -> None:
    history = History()
    versions = []
    for number in range(3 * RAW):
        history.add(number, 0.0)
        versions.append(history.version)
    assert all(after == before + 1 for before, after in pairwise(versions))


def test_what_a_window_gives_can_be_changed_by_its_owner() -> None:
    history = filled([1.0, 2.0, 3.0])
    history.sample(0, 2, 3).lo[:] = 99.0
    assert history.limits(0, 2) == (1.0, 3.0)


def test_steps_out_of_order_are_kept() -> None:
    history = filled([1.0] * (3 * RAW), first=1000)
    history.add(3, 40.0)
    for number in range(2 * RAW):
        history.add(9000 + number, 1.0)
    assert history.limits(-(10**6), 10**6) == (1.0, 40.0)


def test_numbers_beyond_64_bits_neither_raise_nor_stop_later_ones() -> None:
    history = History()
    history.add(-(10**40), -(10**400))
    for number in range(3 * RAW):
        history.add(number, 1.0)
    history.add(10**30, 10**400)
    history.add(10**30, 7)
    assert history.version == 3 * RAW + 3
    assert history.last == 7.0
    assert history.limits(-(10**50), 10**50) == (1.0, 7.0)
    sampled = history.sample(-(10**50), 10**50, 10)
    assert sampled.bad[0]
    assert sampled.bad[-1]


def test_a_leap_in_steps_costs_no_memory() -> None:
    history = filled([1.0] * 5000)
    history.add(10**15, 2.0)
    for number in range(2 * RAW):
        history.add(10**15 + number, 3.0)
    assert history.limits(0, 10**16) == (1.0, 3.0)


@pytest.mark.parametrize(("first", "last", "columns"), [(0, 10, 0), (0, 10, -3), (10, 0, 5)])
def test_an_empty_window_has_nothing_in_it(first: int, last: int, columns: int) -> None:
    sampled = filled([1.0] * 20).sample(first, last, columns)
    assert len(sampled.lo) == len(sampled.hi) == len(sampled.bad) == max(columns, 0)
    assert not np.isfinite(sampled.lo).any()


def test_memory_does_not_grow_with_the_run() -> None:
    tracemalloc.start()
    try:
        history = filled([1.5] * 10_000)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(10_000, 10_000 + 64 * RAW):
            history.add(number, 1.5)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert history.version == 10_000 + 64 * RAW
    assert after - before < 2 * RAW * 16  # at most the raw tail at its longest
