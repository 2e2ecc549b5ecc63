"""What is asked of values: the same answers at once and later, and nothing waits for a device."""

from __future__ import annotations

import gc
import math
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ampwatch.probe.inquest import inquire
from ampwatch.probe.late_inquest import LateInquest
from ampwatch.probe.values import ALL, Question, Values
from ampwatch.record.facts import split_fact

INF, NAN = math.inf, math.nan


def factor_kept(number: float) -> Tensor:
    """As a graph keeps it, which is a kind of its own: it takes no part in promoting types."""
    product = nn.Parameter(torch.ones(2, dtype=torch.float16)) * number
    kept: Tensor = product.grad_fn._saved_other
    return kept


TENSORS = {
    "plain": torch.tensor([[1.0, -2.0], [0.5, 0.0]]),
    "half": torch.tensor([1.0, 65504.0, INF], dtype=torch.float16),
    "masked": torch.tensor([-INF, 0.5]),
    "rows": torch.tensor([[NAN, NAN], [NAN, 1.0], [NAN, NAN]]),
    "all inf": torch.tensor([INF, -INF]),
    "both": torch.tensor([INF, NAN, -3.0]),
    "scalar": torch.tensor(0.0),
    "factor of a product": factor_kept(6e4),
    "empty": torch.empty(0, 3),
    "whole": torch.tensor([-2, 7]),
    "eight bits": torch.tensor([1.0, -448.0]).to(torch.float8_e4m3fn),
    "sparse": torch.tensor([0.0, 4.0]).to_sparse(),
    "meta": torch.empty(3, device="meta"),
}


def answers(values: Values) -> dict[str, Any]:
    asked: dict[str, Any] = {
        name: getattr(values, name)
        for name in ("finite", "nan", "above", "infinite", "zero", "one", "largest_finite")
    }
    asked["nan_rows"] = values.nan_rows
    if values.finite:
        asked |= {"negative": values.negative, "largest": values.largest}
    return asked


def right(tensor: Tensor) -> dict[str, Any]:
    """From the definitions, value by value."""
    numbers = tensor.flatten().double().tolist() if tensor.numel() else []
    finite = [abs(each) for each in numbers if math.isfinite(each)]
    rows = tensor.double().reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
    result: dict[str, Any] = {
        "finite": len(finite) == len(numbers),
        "nan": any(map(math.isnan, numbers)),
        "above": any(math.isnan(each) or each == INF for each in numbers),
        "infinite": any(map(math.isinf, numbers)),
        "zero": 0.0 in numbers,
        "one": 1.0 in numbers,
        "largest_finite": max(finite, default=None),
        "nan_rows": sum(all(map(math.isnan, row)) for row in rows.tolist() if row),
    }
    if result["finite"]:
        result["negative"] = any(each < 0 for each in numbers)
        result["largest"] = max(finite, default=0.0)
    return result


def learned(values: Values) -> None:
    """Ask everything ahead, let the tensor go, and learn the answers."""
    questions = [values.question(kind) for kind in ALL] if values.size else []
    scalars = [question.leave() for question in questions]
    values.tensor = None
    for question, scalar in zip(questions, scalars, strict=True):
        if scalar is not None:
            question.learn(scalar.item())


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", [name for name in TENSORS if name not in ("sparse", "meta")])
def test_answers_are_those_of_the_definitions(name: str, later: bool) -> None:
    values = Values(TENSORS[name])
    if later:
        learned(values)
    assert answers(values) == right(TENSORS[name])


@pytest.mark.parametrize("later", [False, True])
def test_a_sparse_tensor_answers_for_the_values_that_it_has(later: bool) -> None:
    values = Values(TENSORS["sparse"])
    if later:
        learned(values)
    assert (values.finite, values.largest) == (True, 4.0)


@pytest.mark.parametrize("later", [False, True])
def test_what_cannot_be_read_says_nothing(later: bool) -> None:
    values = Values(TENSORS["meta"])
    if later:
        learned(values)
    assert (values.finite, values.infinite, values.nan_rows) == (True, False, 0)


def test_a_question_is_put_once() -> None:
    put = []
    question = Question(lambda: put.append(1) or torch.tensor(3.0))  # type: ignore[func-returns-value]
    assert (question.answer(), question.answer(), len(put)) == (3.0, 3.0, 1)
    assert question.leave() is None


class NoWaiting(TorchFunctionMode):
    """Any of these would wait for a device."""

    WAITS = ("item", "tolist", "__bool__", "__float__", "__int__", "cpu", "nonzero", "equal")

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), more: Any = None
    ) -> Any:
        assert getattr(function, "__name__", "") not in self.WAITS, function
        return function(*args, **(more or {}))


class Attention(nn.Module):
    """Masked with a number that float16 has no room for, as so many do."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            scores = self.query(x) @ self.key(x).transpose(1, 2)
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool)
            return scores.masked_fill(mask, -INF).softmax(-1)


def masked_rows() -> Tensor:
    return Attention()(torch.randn(3, 4, 8)).float().sum()


def too_large() -> Tensor:
    with torch.autocast("cpu", torch.float16):
        return nn.Linear(8, 8)(nn.Linear(8, 8)(torch.full((2, 8), 6e4)) * 6e4).float().mean()


def lost_epsilon() -> Tensor:
    weight = nn.Parameter(torch.zeros(4, dtype=torch.float16))
    return (1.0 / (weight.abs() + 1e-8)).sum()


def broken_power() -> Tensor:
    return (nn.Parameter(torch.tensor([-2.0, 3.0])) ** 0.5).sum()


def a_batch(largest: float) -> Tensor:
    return torch.tensor([[1.0, largest], [2.0, 3.0]])


def nan_in_the_batch() -> tuple[Tensor, Tensor]:
    batch = a_batch(NAN)
    return nn.Linear(2, 1)(batch).sum(), batch


def too_large_a_batch() -> tuple[Tensor, Tensor]:
    batch = a_batch(1e6)
    with torch.autocast("cpu", torch.float16):
        return nn.Linear(2, 1)(batch).float().sum(), batch


def ignored_targets() -> Tensor:
    logits = nn.Linear(4, 3)(torch.ones(2, 4))
    return nn.functional.cross_entropy(logits, torch.full((2,), -100))


def spoilt_weight() -> Tensor:
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight[0, 0] = NAN
    return net(torch.ones(2, 2)).relu().sum()


def well() -> Tensor:
    return nn.Linear(2, 1)(torch.ones(2, 2)).pow(2).mean()


LOSSES = {
    masked_rows: "mask-overflow",
    too_large: "forward-overflow",
    lost_epsilon: "epsilon-underflow",
    broken_power: "nan-born",
    nan_in_the_batch: "nonfinite-input",
    too_large_a_batch: "forward-overflow",
    ignored_targets: "nan-born",
    spoilt_weight: "weights-nonfinite",
    well: None,
}
BATCHES = (nan_in_the_batch, too_large_a_batch)


@pytest.mark.parametrize("make", LOSSES, ids=lambda make: make.__name__)
def test_a_late_inquest_says_what_one_at_once_says(make: Any) -> None:
    torch.manual_seed(0)
    loss, batch = make() if make in BATCHES else (make(), None)  # looked up by its name here
    at_once = inquire([loss], lambda parameters: ["weight"] * len(parameters))
    with NoWaiting():
        late = LateInquest([loss], lambda parameters: ["weight"] * len(parameters))
    loss.backward()  # frees what the graph has kept
    assert late.scalars.dtype is torch.float32
    assert late.fact(late.scalars.tolist()) == at_once
    name, details = (None, {}) if at_once is None else split_fact(at_once)
    assert name == LOSSES[make]
    assert details.get("name") == (None if batch is None else "batch")


def test_a_late_inquest_keeps_nothing_of_the_loop_alive() -> None:
    late = LateInquest([masked_rows()], lambda parameters: [""] * len(parameters))
    reached: dict[int, Any] = {}
    waiting: list[Any] = [late._inquest, late._open]
    while waiting:
        each = waiting.pop()
        if id(each) not in reached and not isinstance(each, (type, ModuleType, FunctionType)):
            reached[id(each)] = each
            waiting += gc.get_referents(each)
    kinds = {type(each) for each in reached.values()}
    assert Question in kinds, "so what belongs to it is reached"
    assert not [kind for kind in kinds if issubclass(kind, Tensor) or "Backward" in kind.__name__]
