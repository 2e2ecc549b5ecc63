"""The limits of formats against torch.finfo and against real casts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ampwatch.formats import FLOAT16, FLOAT32, FORMATS, Format

ALL = pytest.mark.parametrize("form", [*FORMATS, FLOAT32], ids=lambda form: form.dtype)


SAMPLES = (0.0, -0.0, 1.0, -1.5, 0.1, -1e-7, 6e-8, 3e-8, 1e-40, 448.0, 464.0, 465.0, 65504.0)
"""Zeros, subnormals of some formats, the limits of others."""


def cast(value: float, form: Format) -> float:
    dtype = getattr(torch, form.dtype)
    return float(torch.tensor(value, dtype=torch.float64).to(dtype).to(torch.float64))


@ALL
def test_the_limits_are_those_of_torch(form: Format) -> None:
    info = torch.finfo(getattr(torch, form.dtype))
    assert form.largest == info.max
    assert 2.0**form.normal == info.tiny
    assert 2.0**form.lowest == info.smallest_normal * info.eps  # the last bit of a subnormal


@ALL
def test_the_smallest_subnormal_survives_a_cast_and_half_of_it_does_not(form: Format) -> None:
    smallest, half = 2.0**form.lowest, 2.0**form.flushed
    assert cast(smallest, form) == smallest
    assert cast(half * 1.01, form) == smallest
    assert cast(half, form) == 0.0  # a tie, to even
    assert cast(half * 0.99, form) == 0.0


@ALL
def test_what_is_below_the_smallest_normal_loses_bits(form: Format) -> None:
    info = torch.finfo(getattr(torch, form.dtype))
    normal = 2.0**form.normal
    assert cast(normal * (1 + info.eps), form) == normal * (1 + info.eps)
    assert cast(normal / 2 * (1 + info.eps), form) != normal / 2 * (1 + info.eps)


@ALL
def test_the_largest_value_survives_a_cast_and_twice_as_much_overflows(form: Format) -> None:
    assert cast(form.largest, form) == form.largest
    # float64 holds twice the largest value of each of them.
    assert cast(2 * form.largest, form) == float(form.overflows_to)
    assert cast(math.inf, form) == float(form.overflows_to)


@ALL
def test_rounding_by_hand_is_what_a_cast_makes(form: Format) -> None:
    torch.manual_seed(0)
    spread = torch.randn(2000, dtype=torch.float64) * 2.0 ** torch.randint(-30, 20, (2000,))
    edges = [form.largest * factor for factor in (1.0, 1.0001, 1.02, 1.04, 1.07, 2.0)]
    ties = [2.0**form.flushed * odd for odd in (1, 3, 5)]
    for value in [*SAMPLES, *edges, *ties, *spread.tolist(), math.inf, -math.inf]:
        wanted, got = cast(value, form), form.nearest(value)
        assert got == wanted, value
        assert math.copysign(1, got) == math.copysign(1, wanted)
    assert math.isnan(form.nearest(math.nan))


def test_rounding_to_float16_is_numpys_own() -> None:
    values = np.random.default_rng(0).normal(size=5000) * 2.0 ** (np.arange(5000) % 40)
    for value in (values * 2.0**-28).tolist():
        assert FLOAT16.nearest(value) == float(np.float16(value))
