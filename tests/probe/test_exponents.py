"""Exponents of gradients against Python's own float64, value by value."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch
from torch import Tensor
from training_loops import recording

import ampwatch
from ampwatch.probe.exponents import (
    LIMITS,
    MOST_VALUES,
    SPECIALS,
    ExponentCounts,
    count,
    count_on_device,
    packed_row,
    sample,
)
from ampwatch.probe.gradients import dense
from ampwatch.record import Exponents, TensorStats

DTYPES = pytest.mark.parametrize("dtype", list(LIMITS), ids=str)


def by_hand(values: Tensor) -> Exponents:
    """The definition, in float64: floor(log2) of each magnitude."""
    zeros = infinite = nan = 0
    found: Counter[int] = Counter()
    for value in values.double().flatten().tolist():
        if value != value:
            nan += 1
        elif math.isinf(value):
            infinite += 1
        elif value == 0:
            zeros += 1
        else:
            found[math.frexp(value)[1] - 1] += 1
    if not found:
        return Exponents(0, (), zeros, infinite, nan)
    counts = tuple(found[exponent] for exponent in range(min(found), max(found) + 1))
    return Exponents(min(found), counts, zeros, infinite, nan)


def on_device(values: Tensor) -> Exponents:
    """What the way for devices makes of the same values."""
    numbers = count_on_device(values).tolist()
    low, high = LIMITS[values.dtype]
    assert len(numbers) == high - low + 1 + SPECIALS
    return packed_row(low, numbers[:-SPECIALS], *numbers[-SPECIALS:])


def rows(*gradients: Tensor) -> list[Exponents]:
    return ExponentCounts([dense(gradient) for gradient in gradients], random.Random(0)).rows()


def wide(dtype: torch.dtype, size: int = 3000) -> Tensor:
    """Values over the whole range of a format, with all that is special."""
    torch.manual_seed(0)
    low, high = LIMITS[dtype]
    powers = torch.rand(size, dtype=torch.float64) * (high - low) + low
    values = (torch.randn(size, dtype=torch.float64).sign() * torch.exp2(powers)).to(dtype)
    info = torch.finfo(dtype)
    specials = [0.0, -0.0, math.inf, -math.inf, math.nan, info.max, -info.max, info.tiny]
    edges = torch.tensor([*specials, info.tiny / 2, info.smallest_normal * info.eps, 1.0, 0.75])
    if dtype is torch.float64:
        edges = torch.tensor([*specials, 5e-324, 1.0], dtype=torch.float64)
    return torch.cat([values, edges.to(dtype)])


@DTYPES
def test_counts_equal_those_by_hand_on_the_cpu_and_as_on_a_device(dtype: torch.dtype) -> None:
    values = wide(dtype)
    expected = by_hand(values)
    assert expected.zeros >= 2
    assert (expected.infinite >= 2, expected.nan) == (True, 1)
    assert count(values) == expected
    assert on_device(values) == expected
    assert expected.seen == values.numel()


@DTYPES
def test_both_ends_of_a_format_have_their_bins(dtype: torch.dtype) -> None:
    low, high = LIMITS[dtype]
    ends = torch.tensor([2.0**low, 2.0**high], dtype=torch.float64).to(dtype)
    expected = Exponents(low, (1, *(0,) * (high - low - 1), 1))
    assert count(ends) == expected
    assert on_device(ends) == expected


@pytest.mark.parametrize("special", [0.0, math.inf, -math.inf, math.nan])
def test_gradients_without_a_usual_value(special: float) -> None:
    values = torch.full((5,), special)
    assert count(values) == by_hand(values)
    assert on_device(values) == by_hand(values)
    assert count(values).counts == ()


def test_an_empty_gradient() -> None:
    assert rows(torch.empty(0, 3)) == [Exponents(0, ())]


def test_a_power_of_two_opens_its_bin() -> None:
    values = torch.tensor([0.5, 0.999, 1.0, 1.999, 2.0, -2.0])
    assert count(values) == Exponents(-1, (2, 2, 2))


def test_complex_and_sparse_gradients_are_counted_by_their_parts_and_stored_values() -> None:
    complex_ = torch.tensor([3 + 0.25j, -1j], dtype=torch.complex64)
    # 3 is 2^1 and a half of it more; 0.25 = 2^-2; -1j has a real part of 0.
    twice = torch.sparse_coo_tensor([[1, 1]], [1.0, 3.0], (4,), is_coalesced=False)
    assert rows(complex_, twice) == [Exponents(-2, (1, 0, 1, 1), zeros=1), Exponents(2, (1,))]


def test_a_large_gradient_is_sampled_evenly_and_the_rest_of_random_is_untouched() -> None:
    size = 8 * MOST_VALUES
    torch.manual_seed(3)
    gradient = torch.randn(size // 512, 512)
    expected = by_hand(gradient[:, :64])
    state, own = torch.get_rng_state(), random.getstate()
    (row,) = rows(gradient)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == own
    assert MOST_VALUES / 2 < row.seen <= MOST_VALUES
    for exponent in range(-5, 2):
        share = row.counts[exponent - int(row.first)] / row.seen
        wanted = expected.counts[exponent - int(expected.first)] / expected.seen
        assert share == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize(
    ("rows_", "columns"), [(4096, 256), (256, 4096), (1000, 999), (3, 600_000)]
)
def test_a_sample_prefers_no_row_and_no_column(rows_: int, columns: int) -> None:
    place = torch.arange(rows_ * columns).view(rows_, columns)
    values = sample(place, random.Random(0))
    each = values.numel() / columns
    counts = torch.bincount(values % columns, minlength=columns)
    assert counts.max() - counts.min() <= max(1, each * 0.1) + 1
    counts = torch.bincount(values // columns, minlength=rows_)
    assert counts.max() - counts.min() <= 1 + 0.1 * values.numel() / rows_


def test_up_to_the_limit_every_value_is_looked_at_also_of_a_transposed_gradient() -> None:
    gradient = torch.arange(1.0, MOST_VALUES + 1).view(256, -1).t()
    (row,) = rows(gradient)
    assert row == by_hand(gradient)
    assert sample(gradient, random.Random(0)).data_ptr() == gradient.data_ptr()  # not copied


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_counts_are_the_same_and_nothing_waits() -> None:
    values = [wide(dtype) for dtype in LIMITS]
    there = [each.cuda() for each in values]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        counts = ExponentCounts(there, random.Random(0))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert counts.rows() == [by_hand(each) for each in values]


def hooked(scale: float, gain: float = 1.0) -> tuple[list[TensorStats], list[Tensor]]:
    """Detail figures of a loop with a scaler, and the true gradients of their steps."""
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6)
    inputs = torch.randn(16, 8)
    true = torch.autograd.grad(net(inputs).pow(2).mean() * gain, list(net.parameters()))
    with recording() as here, ampwatch.hook(net, optimizer, scaler):
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(net(inputs).pow(2).mean() * gain).backward()
            scaler.step(optimizer)
            scaler.update()
    return here.stats, list(true)


def test_a_detail_step_records_true_exponents_and_the_scale() -> None:
    stats, (weight, bias) = hooked(2.0**12)
    assert stats
    assert stats[0].scale == 2.0**12
    assert dict(zip(stats[0].name, stats[0].exponents, strict=True)) == {
        "weight": by_hand(weight),
        "bias": by_hand(bias),
    }


def test_a_scale_that_is_no_power_of_two_moves_the_bins_and_not_the_values() -> None:
    stats, (weight, bias) = hooked(1000.0)
    rows = dict(zip(stats[0].name, stats[0].exponents, strict=True))
    for name, true in (("weight", weight), ("bias", bias)):
        scaled = by_hand(true * 1000.0)
        assert rows[name].counts == scaled.counts
        assert rows[name].first == pytest.approx(scaled.first - math.log2(1000.0))


def test_an_overflow_has_its_exponents_too() -> None:
    stats, _ = hooked(2.0**12, gain=math.inf)
    assert all(row.infinite + row.nan == row.seen > 0 for row in stats[0].exponents)


def test_where_exponents_cannot_be_told_the_other_figures_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError("frexp on this device")

    monkeypatch.setattr("ampwatch.probe.detail.ExponentCounts", refuse)
    stats, _ = hooked(2.0**12)
    assert stats[0].exponents == ()
    assert len(stats[0].max) == 2
