"""Numbers and phrases as a person reads them."""

from __future__ import annotations

import math

import pytest

from ampwatch.words import (
    count_words,
    number_words,
    power_words,
    rate_words,
    scale_words,
    seconds_words,
    share_words,
)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (65536.0, "2^16"),
        (131072.0, "2^17"),
        (1.0, "1"),
        (0.5, "2^-1"),
        (2.0**-24, "2^-24"),
        (3.0, "3"),
        (1000.5, "1e+03"),
        (0.0, "0"),
        (math.inf, "inf"),
        (math.nan, "NaN"),
        (None, "unknown"),
    ],
)
def test_scales(scale: float | None, words: str) -> None:
    assert scale_words(scale) == words


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (65536.0, "2^16"),
        (0.125, "2^-3"),
        (3.0, "2^1.58"),
        (0.0, "0"),
        (-2.0, "-2"),
        (math.inf, "inf"),
    ],
)
def test_scales_as_powers(scale: float, words: str) -> None:
    assert power_words(scale) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (-3.0, "-3"),
        (123456.0, "123456"),
        (1e7, "1e+07"),
        (0.00123456, "0.00123"),
        (-math.inf, "-inf"),
        (None, "unknown"),
    ],
)
def test_numbers(value: float | None, words: str) -> None:
    assert number_words(value) == words


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [(0, 0, "0 %"), (0, 10, "0 %"), (1, 2000, "0.05 %"), (1, 31, "3.2 %"), (41, 100, "41 %")],
)
def test_shares(part: int, whole: int, words: str) -> None:
    assert share_words(part, whole) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (0.44, "0.4 s"),
        (12.4, "12 s"),
        (65.0, "1 min 05 s"),
        (7800.0, "2 h 10 min"),
        (-5.0, "0 s"),
    ],
)
def test_times(seconds: float, words: str) -> None:
    assert seconds_words(seconds) == words


def test_rates_and_counts() -> None:
    assert [rate_words(rate) for rate in (3800.4, 95.21, 0.25)] == ["3,800/s", "95.2/s", "0.25/s"]
    assert [count_words(n, "step") for n in (0, 1, 1200)] == ["0 steps", "1 step", "1,200 steps"]
