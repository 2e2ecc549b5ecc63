"""What the first operation with inf or NaN in it says of the cause."""

from __future__ import annotations

from typing import Any

import torch

from ampwatch.probe import frames
from ampwatch.probe.dtypes import dtype_name
from ampwatch.probe.guards import GUARDED, LOOK_BACK, half_near, masked, zero_guard
from ampwatch.probe.operations import GIVEN, PASSING, Operation
from ampwatch.probe.values import Values
from ampwatch.record.facts import fact

ROOTS = ("Log", "Sqrt", "Rsqrt")
SOFTMAX = ("Softmax", "LogSoftmax", "SafeSoftmax")
HARMLESS = (
    *SOFTMAX, "Relu", "LeakyRelu", "Tanh", "Sigmoid", "Gelu", "Silu", "Elu", "Hardtanh", "Mean",
    "NllLoss", "NativeLayerNorm", "NativeBatchNorm", "CudnnBatchNorm", "MaxPool2DWithIndices",
    "NativeDropout", *PASSING,
)  # fmt: skip
"""Of finite values they make finite ones."""
JOINING = ("Cat", "Stack")
IMPOSSIBLE = "CtcLoss"
"""Of a sequence that is too short for its labels it is inf; its probabilities on the way may hold
-inf at any time."""
FILLING = ("MaskedFill", "Where", "SWhere")
FACTOR = "nonfinite-factor"
"""Something was multiplied by one number that is inf or NaN: a fact, but a weak one, since a factor
may have been the consequence of what went wrong elsewhere."""
UNSEEN = "unseen"
"""No fact: it arose where nothing is seen, and what comes after it would be blamed wrongly."""
MOST_LOOKED_AT = 4 * LOOK_BACK
"""Operations between the loss and what is kept."""


def in_chain(operation: Operation) -> Operation:
    """Which of the operations that lead to a result that is not finite, none of which keeps such a
    value, is likely to have made it: one that is not defined everywhere, or else one in float16,
    where numbers end first."""
    stack: list[Operation | None] = [operation]
    seen: set[int] = set()
    narrow = hidden = None
    while stack and len(seen) < MOST_LOOKED_AT:
        at = stack.pop()
        if at is None or id(at) in seen or not at.finite():
            continue
        seen.add(id(at))
        if at.results() and at is not operation:
            continue  # what it made is kept, and finite
        if _of_nothing(at) or (at.title in GUARDED and zero_guard(at) is not None):
            return at
        if any(each.negative for each in at.saved.values() if at.title in ROOTS):
            return at
        if at.opaque:
            hidden = at
            continue
        constant = at.title in ("Add", "Sub") and None in at.parents
        if narrow is None and at.dtype is torch.float16 and at.title not in HARMLESS:
            narrow = None if constant else at
        kept = {_place(at, name) for name in at.inputs()}
        stack += [parent for place, parent in enumerate(at.parents) if place not in kept]
    return hidden or narrow or operation


def judge(operation: Operation) -> str | None:
    """The first operation that keeps something that is not finite."""
    if operation.title == IMPOSSIBLE:
        given, loss = operation.saved.get("log_probs"), operation.saved.get("result0")
        if given is not None and loss is not None and given.finite and not loss.finite:
            return fact("nan-born", **_where(operation, loss))
    inputs = {name: each for name, each in operation.inputs().items() if not each.finite}
    if inputs:
        return _of_input(operation, *next(iter(inputs.items())))
    result = next(each for each in operation.results().values() if not each.finite)
    return None if masked_out(operation, result) else of_result(operation, result)


def masked_out(operation: Operation, result: Values) -> bool:
    """Whether a softmax gives -inf, and nothing worse, where a mask of the loop's has put it."""
    if operation.title not in SOFTMAX or result.above:
        return False
    at = operation.source()
    while at is not None and at.title not in FILLING:
        if at.title in ("Addmm", "Mm", "Bmm"):
            return False
        at = at.source()
    return at is not None


def of_mask(operation: Operation, root: Values) -> str:
    """A loss is inf or NaN, and in its graph there is nothing but the -inf of a mask."""
    return fact("nan-born", masked="yes", **_where(operation, root))


def _of_input(operation: Operation, name: str, value: Values) -> str | None:
    """It was handed something that is not finite: by whom?"""
    for parameter, weight in operation.weights():
        if not weight.finite:
            return _of_leaf(parameter, weight)
    maker = maker_of(operation, name)
    if maker is not None:
        if masked_out(maker, value):
            return None
        if maker.variable is not None:
            return _of_weight(operation, maker)
        return of_result(in_chain(maker), value)
    if not value.above:
        return None  # -inf alone: a mask
    return _from_outside(operation, value)


def _of_leaf(name: str, values: Values) -> str:
    """A parameter, or data whose gradient is wanted, is inf or NaN."""
    if name == GIVEN:
        return fact("nonfinite-input", kind="NaN" if values.nan else "inf")
    return fact("weights-nonfinite", tensor=name)


def _of_weight(operation: Operation, leaf: Operation) -> str | None:
    """A leaf came in as inf or NaN: it is so itself, or is beyond float16 where it is lowered."""
    assert leaf.variable is not None
    if not leaf.variable.finite:
        return _of_leaf(GIVEN if leaf.given else "", leaf.variable)
    largest = leaf.variable.largest
    if leaf.given:
        return of_batch(None, largest, operation.module)
    return fact(
        "forward-overflow", op="cast of a weight to float16", module=operation.module,
        largest=f"{largest:.3g}", dtype="float16",
    )  # fmt: skip


_POSITIONS = {
    "Addmm": {"mat1": 1, "mat2": 2}, "Baddbmm": {"batch1": 1, "batch2": 2},
    "ConvolutionOverrideable": {"input": 0, "weight": 1},
}  # fmt: skip
_FIRST = ("self", "input", "mat1", "query", "log_probs", "condition")
_SECOND = ("other", "mat2", "weight", "target", "exponent", "key", "vec")


def _place(operation: Operation, name: str) -> int | None:
    """Which of an operation's inputs, counted from 0, is kept under this name."""
    place = _POSITIONS.get(operation.title, {}).get(name)
    if place is None:
        place = 0 if name in _FIRST else 1 if name in _SECOND else 2 if name == "value" else None
    return place


def maker_of(operation: Operation, name: str) -> Operation | None:
    """The operation that made this input; None for what was handed in from outside."""
    place = _place(operation, name)
    if place is None or place >= len(operation.parents):
        return None
    parent = operation.parents[place]
    return None if parent is None else parent.itself()


def of_batch(name: str | None, largest: float | None, module: str | None) -> str:
    """A batch has numbers that float16 has no room for, where it is cast to that."""
    return fact(
        "forward-overflow", op="cast of the input to float16", name=name, module=module,
        largest=_told(largest), dtype="float16",
    )  # fmt: skip


def from_outside(operation: Operation) -> list[Values]:
    """What it was given that was not computed in this graph, but for single numbers."""
    return [
        value
        for name, value in operation.inputs().items()
        if value.size > 1 and maker_of(operation, name) is None
    ]


def _from_outside(operation: Operation, value: Values) -> str | None:
    """It was not computed in this graph: data, as they were or as the cast to float16 left them."""
    if value.size <= 1:
        return fact(FACTOR, **_where(operation, value))  # and no batch
    nan = value.nan
    known = frames.handed_in(value)
    if known is not None and known.finite:
        return of_batch(known.name, known.largest, operation.module)
    return fact(
        "nonfinite-input",
        kind="NaN" if nan else "inf",
        name=None if known is None else known.name,
    )


def of_result(operation: Operation, result: Values) -> str | None:
    """It made something that is not finite, of inputs that are."""
    if operation.opaque:
        return UNSEEN
    whole = operation
    half = torch.float16 in (result.dtype, operation.dtype)
    where = _where(operation, result)
    if operation.title in SOFTMAX or operation.title.startswith("ScaledDotProduct"):
        rows = result.nan_rows
        if rows and masked(operation):
            return fact("mask-overflow" if half_near(operation, half) else "nan-born",
                        rows=rows, **where)  # fmt: skip
        if rows and half:
            return fact("forward-overflow", output=_told(result.largest_finite), **where)
    if _of_nothing(operation):
        return fact("nan-born", **where)
    # A softmax or a ReLU of finite values is finite: what came before it has done it.
    while operation.title in HARMLESS and (before := operation.source()) is not None:
        operation = before
    if operation.title == "Sqrt" and not result.nan:
        operation = in_chain(operation.source() or operation)  # what it was given was inf
    if operation.opaque:
        return UNSEEN
    half = (
        torch.float16 in (result.dtype, operation.dtype)
        if operation is whole
        else (operation.dtype is torch.float16)
    )
    where = _where(operation, result)
    for parameter, weight in operation.weights():
        if not weight.finite:
            return _of_leaf(parameter, weight)
    joined = operation.title in JOINING and None in operation.parents
    if joined and result.nan:
        return fact("nonfinite-input", kind="NaN")  # it makes nothing: what came from outside did
    if not all(each.finite for each in operation.inputs().values()):
        return fact(FACTOR, **where)
    guard = zero_guard(operation)
    if guard is not None:
        constant, in_half = guard
        if constant is not None and in_half:
            return fact("epsilon-underflow", constant=constant or None, **where)
        return fact("nan-born", **where)
    largest = max((each.largest for each in operation.inputs().values() if each.size), default=None)
    infinite = result.infinite
    told = _told(largest)
    if operation.title in (
        "Log",
        "Sqrt",
        "Rsqrt",
        "Acos",
        "Asin",
        "Acosh",
        "Atanh",
        "Log1P",
    ):
        return fact("nan-born", **where)
    if operation.title == "Pow" and not (operation.power and operation.power.answer()):
        return fact("nan-born", **where)
    if half:
        return fact("forward-overflow", largest=told, output=_told(result.largest_finite), **where)
    if infinite or (largest is not None and largest > 1e18):
        return fact("diverged", largest=told, **where)
    return fact("nan-born", largest=told, **where)


def _of_nothing(operation: Operation) -> bool:
    """Whether it is a mean over no values at all: 0/0. All targets of a batch may be ignored."""
    weight = operation.saved.get("total_weight")
    if weight is not None and weight.size == 1:
        return weight.zero
    return operation.title == "Mean" and operation.setting("self_numel") == 0


def _told(largest: float | None) -> str | None:
    """How far values go."""
    return None if largest is None else f"{largest:.3g}"


def _where(operation: Operation, result: Values) -> dict[str, Any]:
    return {
        "op": operation.words(),
        "module": operation.module,
        "after": operation.after,
        "dtype": dtype_name(operation.dtype or result.dtype),
    }
