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

from ampwatch.probe import late_inquest as late_inquest_module
from ampwatch.probe import operations as operations_module
from ampwatch.probe import values as values_module
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


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_sparse_tensors_of_other_layouts_answer_for_theirs(layout: torch.layout) -> None:
    values = Values(torch.diag(torch.tensor([1.0, -INF, 4.0])).to_sparse(layout=layout))
    assert (values.finite, values.nan, values.above, values.largest_finite) == (
        False,
        False,
        False,
        4.0,
    )


def test_sparse_tensors_are_not_added_up() -> None:
    twice = torch.sparse_coo_tensor([[1, 1]], [3.0, -5.0], (4,), is_coalesced=False)
    assert Values(twice).largest == 5.0


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


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is on a device."""
    monkeypatch.setattr(late_inquest_module, "at_hand", lambda tensor: False)


class NoWaiting(TorchFunctionMode):
    """Any of these would wait for a device."""

    WAITS = (
        "item",
        "tolist",
        "__bool__",
        "__float__",
        "__int__",
        "cpu",
        "nonzero",
        "equal",
        "coalesce",
    )

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
def test_a_late_inquest_says_what_one_at_once_says(make: Any, far: None) -> None:
    torch.manual_seed(0)
    loss, batch = make() if make in BATCHES else (make(), None)  # looked up by its name here
    at_once = inquire([loss], lambda parameters: ["weight"] * len(parameters))
    with NoWaiting():
        late = LateInquest([loss], lambda parameters: ["weight"] * len(parameters))
    loss.backward()  # frees what the graph has kept
    assert (late.scalars.dtype, late.scalars.dim()) == (torch.float64, 1)
    assert late.fact(late.scalars.tolist()) == at_once
    name, details = (None, {}) if at_once is None else split_fact(at_once)
    assert name == LOSSES[make]
    assert details.get("name") == (None if batch is None else "batch")


def test_a_late_inquest_keeps_nothing_of_the_loop_alive(far: None) -> None:
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


class Keeper(torch.autograd.Function):
    """Keeps more than tensors, under a name that leaves of a graph have something else at."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        ctx.variable = 5
        ctx.save_for_backward(inputs)
        return inputs / 0.0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def weights(*shape: int) -> Tensor:
    return nn.Parameter(torch.randn(*shape))


def of_a_function_of_its_own() -> list[Tensor]:
    return [Keeper.apply(weights(3)).sum()]


def beyond_float32() -> list[Tensor]:
    return [(weights(3).double() * 1e300 * 1e300).sum()]


def through_very_many_views() -> list[Tensor]:
    made = weights(4, 4)
    for _ in range(3000):
        made = made.t()
    return [(torch.ones(2, 4) @ made).sum() / 0.0]


def several_roots() -> list[Tensor]:
    weight = weights(3)
    return [weight.sum(), weight * INF]


def nested() -> list[Tensor]:
    rows = [torch.randn(2, 3), torch.randn(3, 3)]
    made = torch.nested.nested_tensor(rows, requires_grad=True) * 2
    return [torch.nested.to_padded_tensor(made, 0.0).sum() / 0.0]


def complex_numbers() -> list[Tensor]:
    return [weights(3) * 1j / 0.0]


def sparse_factor() -> list[Tensor]:
    return [torch.sparse.mm(torch.eye(4).to_sparse(), weights(4, 3) * INF).sum()]


def whole_exponents() -> list[Tensor]:
    return [(weights(3) ** torch.tensor([2, 3, 1]) / 0.0).sum()]


def inside_vmap() -> list[Tensor]:
    weight = weights(3)
    return [torch.vmap(lambda x: (x * weight / 0.0).sum())(torch.randn(4, 3)).sum()]


def a_gradient_of_a_gradient() -> list[Tensor]:
    weight = weights(3)
    (gradient,) = torch.autograd.grad(weight.pow(3).sum(), weight, create_graph=True)
    return [(gradient / 0.0).sum()]


def a_setting_that_was_changed_since() -> list[Tensor]:
    exponent = torch.tensor([2.0, 3.0, 1.0])
    made = weights(3) ** exponent
    exponent.zero_()
    return [made.sum() / 0.0]


def nothing_at_all() -> list[Tensor]:
    return [weights(0, 3).softmax(-1).sum() + (weights(3) / 0.0).sum()]


def on_no_device() -> list[Tensor]:
    return [nn.Parameter(torch.ones(3, device="meta")).sum() / 0.0]


ODD = (
    of_a_function_of_its_own,
    beyond_float32,
    through_very_many_views,
    several_roots,
    nested,
    complex_numbers,
    sparse_factor,
    whole_exponents,
    inside_vmap,
    a_gradient_of_a_gradient,
    a_setting_that_was_changed_since,
    nothing_at_all,
    on_no_device,
)


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_graphs_of_other_kinds_are_judged_alike(make: Any, far: None) -> None:
    torch.manual_seed(0)
    roots = make()
    at_once = inquire(roots, lambda parameters: ["weight"] * len(parameters))
    with NoWaiting():
        late = LateInquest(roots, lambda parameters: ["weight"] * len(parameters))
    assert late.fact(late.scalars.tolist()) == at_once
    assert (at_once is None) == (make in (on_no_device, of_a_function_of_its_own))


@pytest.mark.parametrize("make", [masked_rows, too_large, lost_epsilon, well])
def test_what_is_on_the_host_is_answered_there(make: Any) -> None:
    torch.manual_seed(0)
    loss = make()
    at_once = inquire([loss], lambda parameters: ["weight"] * len(parameters))
    late = LateInquest([loss], lambda parameters: ["weight"] * len(parameters))
    assert late.scalars.tolist() == []
    assert late.fact([]) == at_once


@pytest.mark.parametrize("name", ["plain", "half", "masked", "rows", "all inf", "both", "whole"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_large_tensors_are_asked_piece_by_piece(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values_module, "MOST_AT_ONCE", most)
    assert answers(Values(TENSORS[name])) == right(TENSORS[name])


@pytest.mark.parametrize("most", [1, 20, 1000])
def test_large_products_are_made_again_piece_by_piece(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations_module, "MOST_AT_ONCE", most)
    left, right = torch.randn(5, 3, 4), torch.randn(5, 4, 2)
    largest = float((left @ right).abs().max())
    found = float(operations_module._largest_product(left, right))
    assert found == pytest.approx(largest, rel=1e-6)


def test_a_device_that_is_full_is_no_answer() -> None:
    def full() -> Tensor:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        Question(full).leave()
    with pytest.raises(torch.OutOfMemoryError):
        Question(full).answer()


class Sealed(torch.autograd.Function):
    """What it is given is not seen."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        return inputs @ weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, gradients[0]


@pytest.mark.parametrize("after", [torch.relu, torch.log_softmax, nn.Linear(2, 2)])
def test_nobody_is_blamed_for_what_a_function_of_its_own_has_let_through(after: Any) -> None:
    made = Sealed.apply(a_batch(NAN), weights(2, 2))
    more = (1,) if after is torch.log_softmax else ()
    with torch.autocast("cpu", torch.float16):
        loss = after(made, *more).float().sum()
    assert inquire([loss], lambda parameters: ["weight"] * len(parameters)) is None


@pytest.mark.parametrize("value", [NAN, INF])
def test_data_whose_gradient_is_wanted_are_no_weights(value: float) -> None:
    net, batch = nn.Linear(2, 1), a_batch(value).requires_grad_()

    def names(parameters: list[Tensor]) -> list[str]:
        return ["" if each is batch else "weight" for each in parameters]

    told = inquire([net(batch).square().sum()], names)
    assert told == f"nonfinite-input:kind={'NaN' if value is NAN else 'inf'}"
