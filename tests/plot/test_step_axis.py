"""Step numbers along the bottom: good numbers, few enough to read."""

from __future__ import annotations

import random

import pytest

from ampwatch.plot.step_axis import step_axis


def test_steps_are_written_short() -> None:
    assert [text for _, text in step_axis(0, 20_000).ticks(60)] == ["0", "5k", "10k", "15k", "20k"]
    assert [text for _, text in step_axis(0, 1_000_000).ticks(30)] == ["0", "0.5M", "1M"]
    assert [text for _, text in step_axis(0, 199).ticks(40)] == ["0", "50", "100", "150", "200"]


def test_the_window_is_rounded_outward() -> None:
    axis = step_axis(4234, 5234)
    assert axis.lo <= 4234
    assert axis.hi >= 5234
    assert axis.lo % 50 == 0
    assert axis.hi % 50 == 0
    assert axis.hi - axis.lo <= 1200


def test_the_axis_rests_while_the_run_goes_on() -> None:
    assert len({step_axis(0, last) for last in range(100_000, 105_000)}) <= 2


def test_a_first_step_does_not_fill_the_width() -> None:
    assert (step_axis(0, 0).lo, step_axis(0, 0).hi) == (0, 10)


def test_a_step_has_the_column_that_history_gives_it() -> None:
    axis = step_axis(0, 100)
    assert axis.column(0, 50) == 0
    assert axis.column(100, 50) == 49
    assert axis.column(50, 50) == 50 * 50 // 101


@pytest.mark.parametrize("seed", range(3))
def test_labels_never_touch(seed: int) -> None:
    numbers = random.Random(seed)
    for _ in range(500):
        first = numbers.choice([0, -5, numbers.randrange(10 ** numbers.randint(1, 18))])
        last = first + numbers.randrange(10 ** numbers.randint(1, 18))
        columns = numbers.randint(1, 200)
        axis = step_axis(first, last)
        assert axis.lo <= first <= last <= axis.hi
        ticks = axis.ticks(columns)
        assert all(0 <= column < columns for column, _ in ticks)
        ends = -4
        for column, text in ticks:
            start = min(max(column - len(text) // 2, 0), columns - len(text))
            assert start >= ends + 4
            ends = start + len(text)


def test_a_window_the_wrong_way_round_is_its_first_step() -> None:
    assert step_axis(50, 20) == step_axis(50, 50)
