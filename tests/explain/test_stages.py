"""Every sentence about a step is made from its numbers: other numbers, other sentence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampwatch.explain import Stage, stages
from ampwatch.explain.figures import change, exact, number, place
from ampwatch.explain.limits import beyond, fits
from ampwatch.formats import FLOAT16
from ampwatch.record import Followed, Operation, ScalerInfo, StepAnatomy
from tests.anatomies import HALF, NAMES, SKIPPED, TAKEN

INFO = ScalerInfo("dynamic", 65536.0, 2.0, 0.5, 2000)


def told(anatomy: StepAnatomy, name: str) -> Stage:
    return {stage.name: stage for stage in stages(anatomy, INFO)}[name]


def cells(stage: Stage, label: str) -> tuple[str, ...]:
    """The row of a stage's tables that begins with this."""
    rows = (line.cells for block in stage.blocks for line in block.lines)
    return next(row for row in rows if row[0] == label)


def followed(anatomy: StepAnatomy) -> Followed:
    assert anatomy.followed is not None
    return anatomy.followed


def but(anatomy: StepAnatomy, **changes: Any) -> StepAnatomy:
    """With another followed tensor."""
    return replace(anatomy, followed=replace(followed(anatomy), **changes))


def test_stages_come_in_their_order_and_none_is_missing() -> None:
    for anatomy in (TAKEN, SKIPPED, StepAnatomy(0)):
        assert tuple(stage.name for stage in stages(anatomy)) == NAMES


def test_the_forward_pass_is_counted_by_dtype() -> None:
    stage = told(TAKEN, "forward")
    assert "3 of 4 operations made float16: linear, relu. mse_loss made float32." in stage.text
    assert "weights stay float32" in stage.text
    assert cells(stage, "mse_loss") == ("mse_loss", "fp16+fp32", "–", "fp32", "0.21")
    full = [replace(each, output="float32", weights=()) for each in TAKEN.operations]
    plain = told(replace(TAKEN, dtype="float32", operations=tuple(full)), "forward")
    assert plain.text == "Every operation made float32: autocast lowered none of them."
    missing = told(replace(TAKEN, operations=(), no_operations="it is compiled"), "forward")
    assert missing.absent
    assert missing.text == "The operations cannot be listed: it is compiled."


def test_an_overflow_of_the_forward_pass_is_no_work_for_the_scaler() -> None:
    first = replace(TAKEN.operations[0], nonfinite=24, largest=None)
    operations = (first, *TAKEN.operations[1:])
    stage = told(replace(TAKEN, operations=operations, loss=math.inf), "forward")
    assert stage.bad
    assert "In the result of linear in 0, 24 of 4,096 values are inf or NaN" in stage.text
    assert "the scaler cannot help" in stage.text
    assert "24 inf/NaN" in cells(stage, "linear (0)")
    assert stage.blocks[0].lines[0].mark == "bad"
    mask = Operation("masked_fill", "0", (HALF,), (), HALF, 1.0, 100, 4096)
    behind = told(replace(TAKEN, operations=(mask, *operations), loss=math.nan), "forward")
    assert "In the result of linear in 0, 24" in behind.text, "the mask is no overflow"


@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_is_where_it_starts(loss: float) -> None:
    broken = replace(SKIPPED, loss=loss, scaled_loss=loss)
    words = number(loss)
    assert told(broken, "loss").bad
    assert told(broken, "scale").text.endswith(f" = {words}. No scale makes that finite.")
    back = told(broken, "gradients")
    assert back.text.startswith(f"The loss is {words}, so what comes back from it cannot be")
    assert "65504" not in back.text
    assert not any("starts here" in line.cells for block in back.blocks for line in block.lines)


@pytest.mark.parametrize("loss", [0.0031, None])
def test_a_mask_of_minus_inf_is_no_overflow(loss: float | None) -> None:
    mask = Operation("masked_fill", "attention", (HALF,), (), HALF, 1.0, 100, 4096)
    stage = told(replace(TAKEN, operations=(mask, *TAKEN.operations), loss=loss), "forward")
    assert not stage.bad
    assert not stage.blocks[0].lines[0].mark
    assert "100 of 4,096 values are inf or NaN: what follows makes something finite" in stage.text
    assert "overflow" not in stage.text


def test_the_scaled_loss_is_the_product_that_torch_made() -> None:
    stage = told(TAKEN, "scale")
    assert "0.0031 × 65536 (2^16) = 203.2." in stage.text
    assert "65504 is the largest float16; 203.2 fits." in stage.text
    large = told(SKIPPED, "scale")
    assert "3100 × 65536 (2^16) = 2.032e8." in large.text
    assert "does not fit. That does no harm here: the loss is float32." in large.text
    half = told(replace(SKIPPED, loss_dtype="float16", scaled_loss=math.inf), "scale")
    assert half.bad
    assert "no harm" not in half.text
    gained = told(replace(TAKEN, loss_gain=10.0, scaled_loss=2031.616), "scale")
    assert "0.0031 × 10 (loss gain) × 65536 (2^16) = 2032." in gained.text
    shared = told(replace(TAKEN, scaled_loss=203.1616 / 4), "scale")
    assert "The loop goes on with 50.79: 0.25 of it." in shared.text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scaler": None, "dtype": "bfloat16"}, "no GradScaler; in bfloat16 it needs none"),
        ({"scaler": None}, "no GradScaler, although it computes in float16"),
        ({"scaler": "off"}, "The scaler is off."),
    ],
)
def test_stages_that_a_loop_does_not_have_say_why(changes: dict[str, Any], why: str) -> None:
    plain = replace(TAKEN, scale=None, scaled_loss=None, found_inf=None, scale_after=None)
    anatomy = replace(plain, **changes)
    for name in ("scale", "unscale", "check", "update"):
        stage = told(anatomy, name)
        assert stage.absent, name
        assert why in stage.text, name
    assert not told(anatomy, "step").absent
    bad = replace(anatomy, nonfinite_tensors=1, nonfinite_values=3)
    assert "3 values in 1 gradient of 4 are inf or NaN, and go into the weights" in (
        told(bad, "check").text
    )
    assert told(bad, "check").bad


def test_gradients_are_compared_with_the_end_of_float16() -> None:
    stage = told(TAKEN, "gradients")
    assert f"{65504 / 5120:.3g} times as much" in stage.text
    assert "are float32, cast from what came through" in stage.text
    assert "Without the scale 7 of the 2,048 values of 0.weight would become 0" in stage.text
    alone = cells(stage, "fp16 without scale")[1:]
    half = [float(np.float16(value / 65536)) for value in followed(TAKEN).scaled]
    assert half[2] == 0.0  # 2^-26 is a quarter of the smallest float16
    assert alone == (number(half[0]), number(half[1]), "0 (lost)")
    below = told(but(TAKEN, scaled=(512.0, -1.5, -(2.0**-10))), "gradients")
    assert cells(below, "fp16 without scale")[-1] == "0 (lost)"
    kept = told(but(TAKEN, flushed=0), "gradients")
    assert "float16 would keep all of 0.weight without the scale too" in kept.text
    wide = told(replace(TAKEN, gradient_largest=7616.0), "gradients")
    assert "narrower dtype; the largest finite value is 7616, and 8.6 times as much" in wide.text


def test_a_float32_gradient_is_shown_as_float16_would_hold_it() -> None:
    odd = (1.0 + 2.0**-13, -1e6, 3.0)
    stage = told(but(TAKEN, scaled=odd), "gradients")
    assert cells(stage, "the same in fp16")[1:] == ("1", "-inf", "3")
    exact_ones = told(TAKEN, "gradients")
    with pytest.raises(StopIteration):
        cells(exact_ones, "the same in fp16")


def test_inf_is_told_where_it_came_up() -> None:
    stage = told(SKIPPED, "gradients")
    assert stage.bad
    assert "result of linear in 2, in float16: 9 of 64 values." in stage.text
    assert "came in from mse_loss was still finite (float32, at most 65536)" in stage.text
    assert cells(stage, "linear in 2")[-1] == "inf starts here"
    assert cells(stage, "relu in 1")[-1] == ""
    finite = tuple(replace(each, gradient_nonfinite=0) for each in SKIPPED.operations)
    alone = told(replace(SKIPPED, operations=finite), "gradients")
    assert "inf came up where they are multiplied and summed" in alone.text
    assert "first in that of 2.bias" in alone.text
    put_in = told(replace(SKIPPED, operations=finite, injected=True), "gradients")
    assert "A key has put one inf into the gradients, first in that of 2.bias" in put_in.text


def test_many_finite_gradients_before_the_first_inf_are_left_out() -> None:
    calm = [replace(SKIPPED.operations[3], name=f"loss_{at}") for at in range(40)]
    deep = replace(SKIPPED, operations=(*SKIPPED.operations[:3], *calm))
    block = next(b for b in told(deep, "gradients").blocks if "way back" in b.title)
    names = [line.cells[0] for line in block.lines]
    assert names == [
        *("loss_39", "… 37 more, all finite", "loss_1", "loss_0"),
        *("linear in 2", "relu in 1", "linear in 0"),
    ]
    healthy = replace(TAKEN, operations=(*TAKEN.operations[:3], *calm))
    block = next(b for b in told(healthy, "gradients").blocks if "way back" in b.title)
    assert len(block.lines) == 43


def test_unscaling_divides_and_inf_stays_inf() -> None:
    assert "512 ÷ 65536 = 0.007812" in told(TAKEN, "unscale").text
    assert "inf ÷ 65536 is still inf" in told(SKIPPED, "unscale").text
    assert "own kernel" in told(replace(TAKEN, fused=True), "unscale").text


def test_the_check_says_what_was_found() -> None:
    assert told(TAKEN, "check").text == "found_inf is 0: every value of the 4 gradients is finite."
    found = told(SKIPPED, "check")
    assert "found_inf is 1: 2,113 values in 4 gradients of 4 are inf or NaN" in found.text
    assert "the first is 2.bias." in found.text


def test_clipping_is_told_with_its_factor() -> None:
    assert told(TAKEN, "clip").absent
    cut = told(replace(TAKEN, clip_norm=4.0, clip_limit=1.0), "clip")
    assert "norm 4 is above 1: all are multiplied by 0.25." in cut.text
    kept = told(replace(TAKEN, clip_norm=0.5, clip_limit=1.0), "clip")
    assert "norm 0.5 is not above 1: they stay as they are." in kept.text
    early = replace(TAKEN, clip_norm=9.0, clip_limit=1.0, clipped_scaled=True)
    assert f"is one of {number(1 / 65536)} on true ones" in told(early, "clip").text
    names = [stage.name for stage in stages(early)]
    assert names.index("clip") < names.index("unscale")


def test_a_step_is_told_by_the_weights_themselves() -> None:
    taken = told(TAKEN, "step")
    assert "0.weight[1,1] went from 0.125 to 0.124 (-0.001)." in taken.text
    assert cells(taken, "change")[1:] == ("-0.001", "+0.001", "-0.001")
    stuck = told(but(TAKEN, after=followed(TAKEN).before), "step")
    assert "None of the followed weights has moved" in stuck.text
    idle = but(TAKEN, after=followed(TAKEN).before, unscaled=(0.0, 0.0, 0.0))
    assert "gradients are 0, so their weights stay" in told(idle, "step").text
    skipped = told(SKIPPED, "step")
    assert skipped.bad
    assert "Adam.step was not called. Every weight keeps its bits" in skipped.text
    # Where something wrote to the weights although the step was skipped, no such thing is said.
    moved = told(but(SKIPPED, after=(0.75,)), "step")
    assert "keeps its bits" not in moved.text
    assert "something else has written to it" in moved.text
    fused = told(replace(SKIPPED, fused=True), "step")
    assert "was handed found_inf and left the weights alone" in fused.text


def test_the_update_says_what_became_of_the_scale() -> None:
    assert "12 before, 13 now; at 2,000 it is multiplied by 2." in told(TAKEN, "update").text
    halved = told(SKIPPED, "update").text
    assert "65536 (2^16) × 0.5 = 32768 (2^15)" in halved
    assert "starts again at 0" in halved
    grown = told(replace(TAKEN, scale_after=131072.0, growth_tracker_after=0), "update").text
    assert "2,000 steps in a row without an overflow: 65536 (2^16) × 2 = 131072 (2^17)." in grown
    static = told(replace(TAKEN, scaler="static"), "update").text
    assert static == "The scale is kept at 65536 (2^16): it is static."


def test_rows_are_added_stage_by_stage() -> None:
    counts = [
        sum(len(block.lines) for block in told(TAKEN, name).blocks if "followed" in block.title)
        for name in ("gradients", "unscale", "step")
    ]
    assert counts == [2, 3, 6]


def test_a_record_with_nothing_in_it_still_has_words() -> None:
    for stage in stages(StepAnatomy(0)):
        assert stage.title
        assert stage.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((65504.0, "65504"), (203.1616, "203.2"), (0.0031, "0.0031"), (0.0, "0"), (-0.5, "-0.5")),
        *((2.0316e8 + 0.5, "2.032e8"), (2.0**26, "67108864"), (30412.3, "30412")),
        *((1.02e-6, "1.02e-6"), (math.inf, "inf"), (math.nan, "NaN")),
    ],
)
def test_numbers_are_short_and_right(value: float, text: str) -> None:
    assert number(value) == text


def test_weights_are_told_with_all_digits_of_a_float32() -> None:
    value = float(np.float32(0.1))
    assert np.float32(exact(value)) == np.float32(value)
    assert change(1.0, 1.0) == "0"
    assert place(()) == "[]"


def test_what_fits_is_decided_by_rounding() -> None:
    assert not beyond(65519.0, FLOAT16)  # it rounds down to 65504
    assert beyond(65520.0, FLOAT16)
    assert np.float16(65519.0) == 65504
    assert fits(65520.0, FLOAT16) == "65504 is the largest float16; 65520 does not fit."
