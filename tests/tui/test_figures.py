"""Numbers as they stand on the screen."""

from __future__ import annotations

import math

import pytest

from ampwatch.tui.figures import figure, gain, percent, power_of_two, share
from ampwatch.tui.pace import FRAMES_A_SECOND, LONGEST_WAIT, Pace, wanted_rate
from ampwatch.tui.status import Field, fitted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.93121, "0.931"),
        (12.345, "12.3"),
        (1234.5, "1234"),
        (65536.0, "6.55e4"),
        (0.00012, "1.20e−4"),
        (-2.5, "−2.50"),
        (0.0, "0"),
        (math.nan, "NaN"),
        (-math.inf, "−inf"),
        (1e308, "1.00e308"),
        (5e-324, "4.94e−324"),
        (None, "–"),
    ],
)
def test_three_digits_tell_a_number(value: float | None, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(65536.0, "2^16"), (1.0, "2^0"), (0.5, "2^−1"), (3.0, "3.00"), (0.0, "0"), (math.inf, "inf")],
)
def test_a_scale_is_a_power_of_two(value: float, text: str) -> None:
    assert power_of_two(value) == text


def test_shares_keep_a_trace_of_what_is_rare() -> None:
    assert share(1, 100_000) == "<0.1 %"
    assert share(0, 100) == "0 %"
    assert share(0, 0) == "0 %"
    assert share(1, 8) == "12 %"
    assert percent(0.0123) == "1.2 %"


def test_gains_are_factors() -> None:
    assert [gain(value) for value in (10.0, 0.01, 1e6, 1e-6)] == ["×10", "×0.01", "×1e6", "×1e−6"]


def test_the_least_important_figures_go_first_where_room_is_short() -> None:
    fields = [
        Field(9, "", "RUNNING"),
        Field(1, "lr", "0.1"),
        Field(5, "skipped", "3", short="skips"),
    ]
    assert fitted(fields, 40).plain == "RUNNING  lr 0.1  skipped 3"
    assert fitted(fields, 25).plain == "RUNNING  lr 0.1  skips 3"
    assert fitted(fields, 20).plain == "RUNNING  skips 3"
    assert fitted(fields, 5).plain == "RUNNING"


def test_a_dear_frame_delays_the_next_one_within_bounds() -> None:
    pace = Pace(rate=4.0, share=0.10)
    assert pace.wait(1.0) == 0.25
    assert pace.wait(1.01) == 0.25  # 10 ms are within a tenth of a core at 4 a second
    assert pace.wait(1.05) == pytest.approx(0.40)
    assert pace.wait(9.0) == LONGEST_WAIT


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("8", 8.0),
        ("60", 10.0),
        ("", FRAMES_A_SECOND),
        ("x", FRAMES_A_SECOND),
        ("-1", FRAMES_A_SECOND),
        ("nan", FRAMES_A_SECOND),
        (None, FRAMES_A_SECOND),
    ],
)
def test_the_frame_rate_of_the_environment_is_bounded(text: str | None, rate: float) -> None:
    assert wanted_rate(text) == rate
