"""What a format does to gradients, against real casts of float64 values in torch."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ampwatch.formats import BFLOAT16, E4M3, E5M2, FLOAT16, FORMATS, Format
from ampwatch.probe.exponents import ExponentCounts
from ampwatch.record import ActivationStats, Exponents, TensorStats
from ampwatch.run import Run
from ampwatch.run.ranges import Spread, fit, flow_of, spread_of

FORMS = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.dtype)


def stats_of(*gradients: Tensor, scale: float = 1.0) -> TensorStats:
    """The figures of true gradients, as a detail step records them."""
    rows = ExponentCounts(list(gradients), random.Random(0)).rows()
    return TensorStats(
        step=7,
        name=tuple(f"p{place}" for place in range(len(gradients))),
        norm=tuple(float(g.double().norm()) for g in gradients),
        max=tuple(float(g.double().abs().max()) for g in gradients),
        zeros=tuple(int((g == 0).sum()) for g in gradients),
        nonfinite=tuple(int((~torch.isfinite(g)).sum()) for g in gradients),
        size=tuple(g.numel() for g in gradients),
        exponents=tuple(rows),
        scale=scale,
    )


def spread(*gradients: Tensor) -> Spread:
    found = spread_of(stats_of(*gradients))
    assert found is not None
    return found


def magnitudes(form: Format, size: int = 20_000) -> Tensor:
    """Values that reach from below a format's zero to just under its largest value."""
    torch.manual_seed(1)
    width = math.log2(form.largest) - form.flushed
    powers = torch.rand(size, dtype=torch.float64) * (width + 12) + form.flushed - 12
    return torch.exp2(powers)


def cast(values: Tensor, form: Format) -> Tensor:
    return values.to(getattr(torch, form.dtype)).to(torch.float64)


@FORMS
@pytest.mark.parametrize("scale", [1.0, 2.0**7, 2.0**-5])
def test_shares_flushed_and_subnormal_are_those_of_a_cast(form: Format, scale: float) -> None:
    values = magnitudes(form) / 4096
    scaled = values * scale
    after = cast(scaled, form)
    told = fit(spread(values), form, scale)
    assert told.flushed == float((after == 0).double().mean())
    assert told.flushed_unscaled == float((cast(values, form) == 0).double().mean())
    subnormal = (after != 0) & (scaled < 2.0**form.normal)
    assert told.subnormal == pytest.approx(float(subnormal.double().mean()), abs=1e-12)
    assert told.flushed > 0
    assert told.subnormal > 0


@FORMS
def test_the_range_of_scales_loses_nothing_and_one_step_further_does(form: Format) -> None:
    torch.manual_seed(2)
    values = torch.exp2(torch.rand(5000, dtype=torch.float64) * 9 - 30)  # nine octaves fit them all
    told = fit(spread(values), form, 1.0)
    assert told.lossless
    assert told.lowest is not None
    assert told.highest is not None
    for power in (told.lowest, told.highest):
        after = cast(values * 2.0**power, form)
        assert (after != 0).all()
        assert torch.isfinite(after).all()
        assert (values * 2.0**power <= form.largest).all()
        assert (values * 2.0**power >= 2.0**form.lowest).all()
    assert (values * 2.0 ** (told.lowest - 1) < 2.0**form.lowest).any()
    assert (values * 2.0 ** (told.highest + 1) > form.largest).any()


def test_gradients_wider_than_a_format_fit_at_no_scale() -> None:
    values = torch.tensor([2.0**-30, 1.0], dtype=torch.float64)
    assert fit(spread(values), E4M3, 1.0).lossless is False
    assert fit(spread(values), FLOAT16, 1.0).lossless is True  # 2^6 to 2^15
    assert fit(spread(values), BFLOAT16, 1.0).lossless is True


@FORMS
def test_headroom_is_how_often_the_largest_value_can_be_doubled(form: Format) -> None:
    told = fit(spread(torch.tensor([1e-9, 3.0], dtype=torch.float64)), form, 16.0)
    assert told.headroom == pytest.approx(math.log2(form.largest / (3.0 * 16.0)))
    assert told.highest is not None
    assert 3.0 * 2.0**told.highest <= form.largest < 3.0 * 2.0 ** (told.highest + 1)


def test_fp16_in_figures_a_reader_can_follow() -> None:
    # 2^-30 is flushed, 2^-20 is subnormal, 1 and 1.5 are normal; times 2^16 all are normal but
    # 1.5, which is beyond 65504, and 1 = 65536, which is beyond it as well.
    values = torch.tensor([2.0**-30, 2.0**-20, 1.0, 1.5])
    without = fit(spread(values), FLOAT16, None)
    assert (without.flushed, without.flushed_unscaled, without.subnormal) == (0.25, 0.25, 0.25)
    assert without.overflowing == 0.0
    assert (without.lowest, without.highest) == (6, 15)
    scaled = fit(spread(values), FLOAT16, 65536.0)
    assert (scaled.flushed, scaled.flushed_unscaled, scaled.subnormal) == (0.0, 0.25, 0.0)
    assert scaled.overflowing == 0.5
    assert scaled.headroom == pytest.approx(math.log2(65504 / 98304))


def test_the_last_value_that_fits_does_not_count_as_overflowing() -> None:
    assert fit(spread(torch.tensor([65504.0])), FLOAT16, 1.0).overflowing == 0.0
    assert fit(spread(torch.tensor([65504.0])), FLOAT16, 2.0).overflowing == 1.0
    assert fit(spread(torch.tensor([57344.0])), E5M2, 1.0).headroom == 0.0


def test_a_scale_that_is_no_power_of_two_shifts_by_a_part_of_a_bin() -> None:
    half = Spread(-25.5, (8.0,), 0, 0, 8, 8, 2.0**-25, 1)
    assert fit(half, FLOAT16, 1.0).flushed == 0.5  # half of the bin lies below 2^-25
    assert fit(half, FLOAT16, math.sqrt(2)).flushed == pytest.approx(0.0)


def test_the_whole_model_is_its_tensors_together_and_one_is_chosen_by_name() -> None:
    stats = stats_of(torch.tensor([0.5, 0.0]), torch.tensor([8.0, 2.0, 2.0]), torch.zeros(4))
    whole = spread_of(stats)
    assert whole == Spread(-1, (1, 0, 2, 0, 1), 5, 0, 9, 9, 8.0, 3)
    assert spread_of(stats, "p1") == Spread(1, (2, 0, 1), 0, 0, 3, 3, 8.0, 1)
    assert spread_of(stats, "p2") == Spread(0, (), 4, 0, 4, 4, None, 1)
    assert spread_of(stats, "gone") is None


def test_a_sampled_tensor_weighs_what_it_has_in_values() -> None:
    stats = TensorStats(
        *(1, ("big", "small"), (1.0, 1.0), (1.0, 1.0), (0, 0), (0, 0), (1000, 10)),
        exponents=(Exponents(0, (100,)), Exponents(-3, (10,))),
    )
    whole = spread_of(stats)
    assert whole is not None
    assert (whole.counts, whole.size, whole.seen) == ((10, 0, 0, 1000), 1010, 110)


def test_inf_and_nan_leave_the_largest_value_unknown() -> None:
    told = spread(torch.tensor([1.0, math.inf, math.nan]))
    assert (told.nonfinite, told.largest) == (2, None)
    assert told.usual == 1
    result = fit(told, FLOAT16, 1.0)
    assert (result.headroom, result.highest, result.lossless) == (None, None, None)


def test_nothing_but_zeros_is_not_judged() -> None:
    result = fit(spread(torch.zeros(3)), FLOAT16, 65536.0)
    assert (result.flushed, result.headroom, result.lowest, result.lossless) == (
        0,
        None,
        None,
        None,
    )


def test_records_without_exponents_have_no_spread() -> None:
    assert spread_of(TensorStats(1, ("a",), (1.0,), (1.0,), (0,), (0,))) is None


FLOW = ActivationStats(
    7,
    ("head", "head", "body", "body"),
    after=(True, False, True, False),
    dtype=("float32", "float16", "float16", "float16"),
    max=(2.0**16, 8.0, 1.0, 0.25),
    nonfinite=(0, 0, 1, 0),
    size=(1, 40, 3, 2),
    exponents=(
        Exponents(16, (1,)),
        Exponents(2, (3, 1)),
        Exponents(-1, (1, 1), infinite=1),
        Exponents(-2, (1,), zeros=1),
    ),
    scale=2.0**16,
)


def test_activation_gradients_of_the_narrowest_format_are_taken_together() -> None:
    whole, dtype = flow_of(FLOW)
    # Of the head's 40 values four were looked at; the loss's own 2^16 need not fit float16.
    assert whole == Spread(-2, (1, 1, 1, 0, 30, 10), 1, 1, 45, 9, 8.0, 3)
    assert dtype == "float16"
    wide, dtype = flow_of(replace(FLOW, dtype=("float32",) * 4))
    assert wide is not None
    assert (wide.largest, wide.tensors, dtype) == (2.0**16, 4, "float32")


def test_of_one_module_its_output_alone_is_shown() -> None:
    spread, dtype = flow_of(FLOW, "body")
    assert spread == Spread(-2, (1,), 1, 0, 2, 2, 0.25, 1)
    assert dtype == "float16"
    assert flow_of(FLOW, "tail") == (None, "")
    assert flow_of(replace(FLOW, exponents=())) == (None, "")


def test_what_several_optimizers_record_of_a_step_is_one_detail_step() -> None:
    run = Run()
    first = stats_of(torch.tensor([0.5, 0.0]))
    other = replace(stats_of(torch.tensor([8.0])), name=("q0",))
    run.add(first)
    run.add(other)
    assert run.tensors is not None
    assert run.tensors.name == ("p0", "q0")
    assert run.tensors.exponents == first.exponents + other.exponents
    whole = spread_of(run.tensors)
    assert whole is not None
    assert (whole.largest, whole.size) == (8.0, 3)
    run.add(replace(other, step=first.step + 20))
    assert run.tensors.name == ("q0",)  # that step was the other's alone
    run.add(FLOW)
    run.add(FLOW)
    assert run.activations is not None
    assert len(run.activations.name) == 8
    run.add(replace(FLOW, scale=1.0))
    assert len(run.activations.name) == 4
