"""What is kept of a run's records."""

from __future__ import annotations

import pytest
from made_runs import stats, track

from ampwatch.compare.track import Track
from ampwatch.record import Notice, RunInfo, StepRecord


def steps(made: Track, times: list[float], first: int = 0, **fields: object) -> None:
    for number, time in enumerate(times, first):
        made.add(StepRecord(number, time, loss=1.0, **fields))  # type: ignore[arg-type]


def test_a_step_takes_from_its_record_to_the_next_and_a_pause_is_no_part_of_it() -> None:
    made = Track()
    made.add(RunInfo("x", 0.0, device="cpu"))
    steps(made, [1.0, 2.0])
    made.begin_block(4)
    steps(made, [50.0, 50.1, 50.3, 50.6], 2)  # 0.1, 0.2 and 0.3 seconds; what was before is a wait
    made.add(Notice("", "step", 0.7))
    assert made.blocks == [pytest.approx(0.2)]


def test_what_watching_took_is_left_out() -> None:
    made = Track()
    made.begin_block(4)
    steps(made, [0.0, 1.0, 2.0, 3.0], overhead=0.25)
    made.add(Notice("", "step", 3.0))
    assert made.blocks == [0.75]


def test_on_a_device_only_the_whole_block_tells() -> None:
    made = Track()
    made.add(RunInfo("x", 0.0, device="cuda:0"))
    made.begin_block(4)
    steps(made, [0.0, 0.001, 0.002, 0.003])  # the loop runs ahead of the device
    made.add(Notice("", "step", 0.8))
    assert made.blocks == [pytest.approx(0.2)]


def test_a_block_that_was_cut_short_or_is_too_short_is_not_timed() -> None:
    made = Track()
    made.begin_block(3)
    steps(made, [0.0, 1.0, 2.0])
    made.add(Notice("", "step", 2.0))
    made.begin_block(5)
    steps(made, [3.0, 4.0, 5.0, 6.0], 3)
    made.ended()
    assert made.blocks == [None, None]


def test_it_waits_from_the_answer_to_the_next_block() -> None:
    made = Track()
    assert not made.waits
    made.add(Notice("", "step", 0.1))  # of the warm-up
    assert made.waits
    assert made.blocks == []
    made.begin_block(2)
    assert not made.waits


def test_with_several_optimizers_steps_and_losses_are_those_of_the_first() -> None:
    made = Track()
    made.begin_block(4)
    for step in range(4):
        made.add(StepRecord(step, 10.0 * step, loss=1.0, optimizer="Adam", skipped=step == 2))
        made.add(StepRecord(step, 10.0 * step + 9, loss=5.0, optimizer="Adam 2", skipped=step == 2))
    made.add(Notice("", "step", 39.0))
    assert made.blocks == [10.0]
    assert list(made.losses) == [1.0] * 4
    assert (made.steps, made.skipped) == (4, 1)


def test_memory_is_the_most_that_was_told() -> None:
    made = Track()
    for step, saved in enumerate([100.0, 300.0, 200.0]):
        made.add(StepRecord(step, 0.0, metrics={"saved_bytes": saved, "accuracy": 9e9}))
    assert made.saved_bytes == 300.0
    assert made.peak_bytes is None


def test_zeros_are_added_up_over_the_optimizers_of_a_step() -> None:
    made = track([1.0] * 10)
    made.add(stats(5, [10, 20]))
    made.add(stats(5, [1]))
    made.add(stats(6, [50]))
    assert made.zeros == {5: (31, 300), 6: (50, 100)}


def test_a_step_with_inf_says_nothing_of_what_was_flushed() -> None:
    made = Track()
    made.add(stats(5, [10]))
    made.add(stats(5, [10], nonfinite=1))
    made.add(stats(5, [10]))
    assert made.zeros == {}
