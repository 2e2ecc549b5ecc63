"""Limits are rounded outward to good numbers, ticks are few and exact."""

from __future__ import annotations

import doctest
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from ampwatch.plot import labels
from ampwatch.plot.axis import bare_axis, value_axis

pytestmark = pytest.mark.filterwarnings("error")


def shown(kind: str, lo: float, hi: float, most: int, floor_zero: bool = False) -> dict[str, float]:
    axis = value_axis(kind, lo, hi, most, floor_zero)
    return {tick.label: round(tick.at, 3) for tick in axis.ticks}


def test_labels_are_as_documented() -> None:
    result = doctest.testmod(labels)
    assert result.attempted > 0
    assert result.failed == 0


def test_linear_ticks_are_multiples_of_1_2_or_5() -> None:
    # 0.31 to 2.7 is rounded to 0.3 to 2.8 (steps of 0.1), ticks every 0.5.
    assert shown("linear", 0.31, 2.7, 5) == {
        "0.5": 0.08, "1.0": 0.28, "1.5": 0.48, "2.0": 0.68, "2.5": 0.88,
    }  # fmt: skip


def test_limits_stay_while_the_data_moves_a_little() -> None:
    axes = {value_axis("linear", 0.31 + shift / 1000, 2.7, 5) for shift in range(80)}
    assert len(axes) == 1


def test_log2_ticks_are_powers_of_two() -> None:
    assert shown("log2", 2.0**14, 2.0**16, 5) == {"2^14": 0.0, "2^15": 0.5, "2^16": 1.0}
    assert shown("log2", 1.0, 2.0**24, 4) == {"2^0": 0.0, "2^8": 0.333, "2^16": 0.667, "2^24": 1.0}


def test_log10_ticks_are_decades() -> None:
    assert shown("log10", 1e-3, 10.0, 5) == {
        "1e-3": 0,
        "0.01": 0.25,
        "0.1": 0.5,
        "1": 0.75,
        "10": 1,
    }


def test_a_narrow_log_axis_has_ticks_between_the_decades() -> None:
    assert list(shown("log10", 0.31, 0.33, 3)) == ["0.31", "0.32", "0.33"]


def test_counts_start_at_zero_and_have_whole_ticks() -> None:
    assert shown("linear", 0.0, 3.0, 5, True) == {"0": 0.0, "1": 0.333, "2": 0.667, "3": 1.0}
    assert shown("linear", 0.0, 0.0, 5, True) == {"0": 0.0, "1": 1.0}


@pytest.mark.parametrize("kind", ["linear", "log2", "log10"])
@pytest.mark.parametrize("value", [5e-324, 1e-300, 0.3, 1.0, 65536.0, 60000.0, 1e300, 1.7e308])
def test_a_constant_lies_in_the_middle(kind: str, value: float) -> None:
    axis = value_axis(kind, value, value, 5)
    assert axis.place(np.array([value]))[0] == pytest.approx(0.5)


@pytest.mark.parametrize("value", [0.0, -1.0, -1.7e308, -5e-324])
def test_so_does_a_negative_one(value: float) -> None:
    assert value_axis("linear", value, value, 5).place(np.array([value]))[0] == pytest.approx(0.5)


def test_values_that_differ_in_the_seventh_digit_have_labels_that_differ() -> None:
    ticks = shown("linear", 0.6931470, 0.6931475, 5)
    assert len(ticks) >= 2
    assert all(len(label) <= labels.LONGEST + 3 for label in ticks)


def test_what_cannot_be_on_a_log_axis_is_a_gap() -> None:
    axis = value_axis("log10", 0.1, 10.0, 5)
    placed = axis.place(np.array([0.0, -1.0, math.nan, math.inf, -math.inf, 1.0]))
    assert np.isnan(placed[:5]).all()
    assert placed[5] == pytest.approx(0.5)
    assert bare_axis("log2").ticks == ()


def test_labels_say_exactly_where_their_tick_is() -> None:
    numbers = random.Random(11)
    for _ in range(1500):
        lo, hi = sorted(numbers.uniform(-10, 10) * 10.0 ** numbers.randint(-300, 300) for _ in "ab")
        axis = value_axis("linear", lo, hi, numbers.randint(2, 7))
        low, high = Fraction(axis.lo), Fraction(axis.hi)
        unit = Fraction(2) ** axis.shift
        for tick in axis.ticks:
            exact = (low + Fraction(tick.at) * (high - low)) * unit
            error = abs(Fraction(tick.label) - exact) / (unit * (high - low))
            assert error < Fraction(1, 100), (lo, hi, tick)


def test_any_span_of_any_kind_gives_an_axis_that_holds_it() -> None:
    numbers = random.Random(5)
    pool = [5e-324, 1e-323, 2.2e-308, 1e-300, 1e-9, 0.1, 0.3, 1.0, 7.0, 1e9, 1e300, 1.7e308]
    for _ in range(4000):
        kind = numbers.choice(["linear", "log2", "log10"])
        lo, hi = (numbers.choice(pool) * numbers.choice([1.0, numbers.random()]) for _ in "ab")
        if kind == "linear":
            lo, hi = lo * numbers.choice([1, -1]), hi * numbers.choice([1, -1, 0])
        lo, hi = sorted((lo, hi))
        if kind != "linear" and lo <= 0:
            continue
        most = numbers.randint(2, 7)
        floor_zero = kind == "linear" and numbers.random() < 0.2
        axis = value_axis(kind, lo, hi, most, floor_zero)
        placed = axis.place(np.array([lo, hi]))
        slack = 1e-6
        if floor_zero:
            assert placed[1] <= 1 + slack
        else:
            assert -slack <= placed[0] <= placed[1] + slack <= 1 + 2 * slack, (kind, lo, hi, axis)
        assert len(axis.ticks) <= most, (kind, lo, hi, axis)
        assert axis.ticks, (kind, lo, hi, axis)
        assert all(-slack <= tick.at <= 1 + slack for tick in axis.ticks), (kind, lo, hi, axis)
        assert all(tick.label.isascii() and len(tick.label) <= 11 for tick in axis.ticks)
        if lo < hi and not floor_zero and kind == "linear" and len(axis.ticks) > 1:
            assert placed[1] - placed[0] > 0.6, (kind, lo, hi, axis)
