"""What a lesson is told about the run is what the records say."""

from __future__ import annotations

import math

import pytest

from ampwatch.controls import Controls
from ampwatch.lessons import Scene
from ampwatch.record import StepRecord
from ampwatch.run import Run

SCALES = [8.0] * 5 + [16.0] * 3 + [8.0] * 4 + [2.0] * 3
SKIPPED = {7}


def scene(began: int = 0, steps: int = len(SCALES), **fields: object) -> Scene:
    run = Run()
    for step in range(steps):
        run.add(
            StepRecord(
                step,
                step * 0.1,
                loss=math.inf if step == 3 else 10.0 - step,
                scale=SCALES[step],
                skipped=step in SKIPPED,
                dtype="float16" if step < 10 else "bfloat16",
                scaler="dynamic",
            )._replace(**fields)  # type: ignore[arg-type]
        )
    return Scene(run, Controls(), began)


def test_moves_of_the_scale_are_told_with_their_causes() -> None:
    moves = scene().moves
    assert [(each.step, each.before, each.after) for each in moves] == [
        (5, 8.0, 16.0),
        (8, 16.0, 8.0),
        (12, 8.0, 2.0),
    ]
    assert [each.grew for each in moves] == [True, False, False]
    assert [each.fell for each in moves] == [False, True, False]
    assert [each.by_hand for each in moves] == [False, False, True]  # no skip, no halving


def test_a_move_at_the_step_at_which_a_part_begins_counts() -> None:
    assert [each.step for each in scene(8).moves] == [8, 12]
    assert [each.step for each in scene(9).moves] == [12]


def test_skips_are_those_since_the_part_began() -> None:
    assert list(scene(7).skips) == [7]
    assert list(scene(8).skips) == []


def test_values_come_step_by_step_and_inf_is_no_number() -> None:
    values = scene().values("loss", 2, 5)
    assert values[0] == 8.0
    assert math.isnan(values[1])
    assert values[2:] == [6.0, 5.0]
    assert scene().points("loss", 4, 5) == [(4, 6.0), (5, 5.0)]
    assert scene().value("loss", 99) is None
    assert scene().values("nothing", 0, 5) == []


def test_the_median_leaves_out_what_is_not_finite() -> None:
    assert scene().median("loss", 2, 4) == 7.0
    assert scene().middle("loss", 3) == pytest.approx(-3.0)


def test_modes_and_the_last_step_are_those_since_the_part_began() -> None:
    assert scene(0).modes == {("float16", "dynamic"), ("bfloat16", "dynamic")}
    assert scene(10).modes == {("bfloat16", "dynamic")}
    assert scene(10).dtype == "bfloat16"
    assert scene(len(SCALES)).last is None
    assert scene(len(SCALES)).scale is None


def test_a_scene_of_a_run_without_steps_knows_nothing() -> None:
    empty = scene(steps=0)
    assert (empty.last, empty.moves, list(empty.skips), empty.steps) == (None, [], [], 0)
    assert (empty.spread, empty.anatomy, empty.middle("loss", 5)) == (None, None, None)
