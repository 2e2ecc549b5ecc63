"""Norms and counts against torch in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from training_loops import RecordingHost, recording, true_norm

import ampwatch
from ampwatch.probe.gradients import LARGE, Reading, count_nonfinite, total_norm


def with_gradient(gradient: Tensor) -> Tensor:
    parameter = nn.Parameter(torch.empty_like(gradient))
    parameter.grad = gradient
    return parameter


def read_norm(*gradients: Tensor) -> float:
    """What a hook records for an optimizer with these gradients."""
    parameters = [with_gradient(gradient) for gradient in gradients]
    optimizer = torch.optim.SGD(parameters, lr=0.0)
    with recording() as here, ampwatch.hook(None, optimizer):
        optimizer.step()
    norm = here.steps[0].grad_norm
    assert norm is not None
    return norm


SIZES = [1, 2, 3, 100, 4095, 4097, LARGE - 1, LARGE, LARGE + 1, 100_003, 10**6, 10**7]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["normal", "constant", "one-sided"])
def test_norm_equals_float64(size: int, kind: str) -> None:
    torch.manual_seed(size)
    values = {
        "normal": torch.randn(size),
        "constant": torch.full((size,), 0.1),
        "one-sided": torch.rand(size) + 0.5,
    }[kind]
    assert read_norm(values) == pytest.approx(float(values.double().norm()), rel=1e-6)


def test_norm_of_many_sizes_together() -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(size) * 10.0**-index for index, size in enumerate(SIZES[:-1])]
    expected = math.sqrt(sum(float(g.double().pow(2).sum()) for g in gradients))
    assert read_norm(*gradients) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1, 300, 70_000])
def test_norm_in_other_formats(dtype: torch.dtype, size: int) -> None:
    torch.manual_seed(0)
    values = (torch.randn(size) * 300).to(dtype)
    assert read_norm(values) == pytest.approx(float(values.double().norm()), rel=1e-6)


def test_float64_gradients_beyond_float32() -> None:
    values = torch.tensor([3e200, 4e200], dtype=torch.float64) / 1e180
    assert read_norm(values) == pytest.approx(5e20, rel=1e-6)
    tiny = torch.tensor([3e-60, 4e-60], dtype=torch.float64)
    assert read_norm(tiny) == pytest.approx(5e-60, rel=1e-6)


@pytest.mark.parametrize("size", [2, 100_000])
@pytest.mark.parametrize("magnitude", [1e25, 3e38, 1e-25, 1e-40])
def test_norm_of_values_whose_float32_squares_do_not_fit(magnitude: float, size: int) -> None:
    values = torch.zeros(size)
    values[0], values[1] = magnitude, magnitude / 2
    expected = float(values.double().norm())
    assert math.isfinite(expected)
    if magnitude < 1 and size >= LARGE:
        return  # a large layer whose squares are all 0 is not looked at twice
    assert read_norm(values) == pytest.approx(expected, rel=1e-6)


def test_large_finite_gradients_are_no_overflow() -> None:
    optimizer = torch.optim.SGD([with_gradient(torch.full((5,), 1e30))], lr=0.0)
    with recording() as here, ampwatch.hook(None, optimizer):
        optimizer.step()
    assert here.steps[0].nonfinite_tensors == 0
    assert here.steps[0].nonfinite_values == 0
    assert here.steps[0].origin is None


def test_complex_gradients_count_both_parts() -> None:
    values = torch.tensor([3 + 4j, 1 - 2j], dtype=torch.complex64)
    assert read_norm(values) == pytest.approx(math.sqrt(30), rel=1e-6)
    assert read_norm(values.conj()) == pytest.approx(math.sqrt(30), rel=1e-6)


def test_sparse_gradients_add_up_repeated_entries() -> None:
    embedding = nn.Embedding(6, 2, sparse=True)
    embedding(torch.tensor([1, 1, 3])).sum().backward()
    gradient = embedding.weight.grad
    assert gradient is not None
    assert not gradient.is_coalesced()
    # Row 1 is used twice: its two entries are 2, those of row 3 are 1.
    assert read_norm(gradient) == pytest.approx(math.sqrt(4 + 4 + 1 + 1), rel=1e-6)
    assert read_norm(gradient.coalesce()) == pytest.approx(math.sqrt(10), rel=1e-6)
    assert not gradient.is_coalesced(), "the loop's own gradient stays as it is"


def test_non_contiguous_and_expanded_gradients() -> None:
    torch.manual_seed(0)
    values = torch.randn(300, 200).t()[::2]
    assert read_norm(values) == pytest.approx(float(values.double().norm()), rel=1e-6)
    expanded = torch.tensor([2.0]).expand(40_000)
    assert read_norm(expanded) == pytest.approx(400.0, rel=1e-6)


def test_empty_and_scalar_gradients() -> None:
    assert read_norm(torch.empty(0, 3), torch.tensor(2.0)) == 2.0


def test_gradients_that_have_a_graph_of_their_own(recorded: RecordingHost) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    ampwatch.hook(None, optimizer)
    (weight**3).sum().backward(create_graph=True)
    optimizer.step()
    assert recorded.steps[0].grad_norm == pytest.approx(3 * math.sqrt(3), rel=1e-6)
    weight.grad = None


def test_several_parameters_without_a_gradient(recorded: RecordingHost) -> None:
    used, unused, frozen = (nn.Parameter(torch.ones(2)) for _ in range(3))
    frozen.requires_grad_(False)
    optimizer = torch.optim.SGD([unused, frozen, used], lr=0.0)
    ampwatch.hook(None, optimizer)
    (used * 3).sum().backward()
    optimizer.step()
    assert recorded.steps[0].grad_norm == pytest.approx(true_norm([used]), rel=1e-6)
    assert recorded.facts == set()


def test_no_gradient_at_all_is_a_fact(recorded: RecordingHost) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.0)
    ampwatch.hook(None, optimizer)
    optimizer.step()
    assert recorded.steps[0].grad_norm is None
    assert recorded.steps[0].nonfinite_tensors is None
    assert recorded.facts == {"no-gradients"}


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_non_finite_values_are_counted(bad: float, recorded: RecordingHost) -> None:
    gradients = [torch.ones(5), torch.ones(30_000), torch.ones(3)]
    gradients[1][[7, 9, 11]] = bad
    gradients[2][0] = bad
    optimizer = torch.optim.SGD([with_gradient(g) for g in gradients], lr=0.0)
    ampwatch.hook(None, optimizer)
    optimizer.step()
    record = recorded.steps[0]
    assert record.nonfinite_tensors == 2
    assert record.nonfinite_values == 4
    assert record.origin == "group0.param2", "without a graph the last defined comes first"
    stats = recorded.stats[0]
    assert dict(zip(stats.name, stats.nonfinite, strict=True)) == {
        "group0.param0": 0,
        "group0.param1": 3,
        "group0.param2": 1,
    }
    assert dict(zip(stats.name, stats.size, strict=True))["group0.param1"] == 30_000


def test_nan_wins_over_inf_in_a_total() -> None:
    assert math.isnan(total_norm([math.inf, math.nan]))
    assert total_norm([math.inf, 1.0]) == math.inf
    assert total_norm([3.0, 4.0]) == 5.0


def test_counts_are_those_of_isfinite() -> None:
    assert int(count_nonfinite(torch.tensor([1.0, math.inf, math.nan, -math.inf]))) == 3


def test_a_reading_keeps_the_place_of_each_gradient() -> None:
    first, second, third = (nn.Parameter(torch.ones(2)) for _ in range(3))
    second.grad = torch.tensor([3.0, 4.0])
    third.grad = torch.tensor([1.0, 0.0])
    reading = Reading([first, second, third])
    assert reading.index == [1, 2]
    assert reading.values == [5.0, 1.0]
