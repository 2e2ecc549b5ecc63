"""What the first operation with inf or NaN in it says of the cause."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ampwatch.probe import frames
from ampwatch.record.facts import fact

RESULTS = ("result", "result0", "output", "out")
"""Under these names an operation keeps what it has made; under others what it was given."""
PASSING = (
    "ToCopy", "T", "View", "UnsafeView", "Expand", "Transpose", "Permute", "Reshape", "Alias",
    "Unsqueeze", "Squeeze", "Clone", "ReshapeAlias", "Slice", "Select",
)  # fmt: skip
"""They move values about and make none."""
GUARDED = ("Div", "Log", "Rsqrt", "Reciprocal", "Log2", "Log10", "Pow")
"""Operations that people guard with a small constant."""
ROOTS = ("Log", "Sqrt", "Rsqrt")
MASKING = ("Add", "MaskedFill", "Where", "Sub", "SWhere")
SOFTMAX = ("Softmax", "LogSoftmax", "SafeSoftmax")
HARMLESS = (
    *SOFTMAX, "Relu", "LeakyRelu", "Tanh", "Sigmoid", "Gelu", "Silu", "Elu", "Hardtanh", "Mean",
    "NllLoss", "NativeLayerNorm", "NativeBatchNorm", "CudnnBatchNorm", "MaxPool2DWithIndices",
    "NativeDropout", *PASSING,
)  # fmt: skip
"""Of finite values they make finite ones."""
LOOK_BACK = 12


@dataclass(eq=False)
class Operation:
    """One node of the graph, with what it keeps."""

    node: Any
    title: str
    number: int
    saved: dict[str, Tensor]
    parents: list[Operation | None] = field(default_factory=list)
    parameters: list[tuple[str, Tensor]] = field(default_factory=list)
    module: str | None = None
    """The module whose parameters it uses."""
    after: str | None = None
    """The module whose parameters were used last before it."""

    @property
    def dtype(self) -> torch.dtype | None:
        """Of what it has made."""
        made = getattr(self.node, "_input_metadata", None)
        return made[0].dtype if made else None

    def finite(self) -> bool:
        """Whether nothing that it keeps is inf or NaN."""
        return all(_fine(tensor) for tensor in self.saved.values())

    def weights(self) -> list[tuple[str, Tensor]]:
        """Parameters that come in directly or through a cast or a transposition."""
        found = list(self.parameters)
        for parent in self.parents:
            if parent is not None and parent.title in PASSING:
                found += parent.weights()
        return found

    def inputs(self) -> dict[str, Tensor]:
        return {name: each for name, each in self.saved.items() if name not in RESULTS}

    def results(self) -> dict[str, Tensor]:
        return {name: each for name, each in self.saved.items() if name in RESULTS}

    def source(self) -> Operation | None:
        """The operation that made its first input, past casts and views."""
        parent = next((each for each in self.parents if each is not None), None)
        return parent.itself() if parent is not None else None

    def itself(self) -> Operation | None:
        """The same, or what it passes on."""
        operation: Operation | None = self
        while operation is not None and operation.title in PASSING:
            operation = next((each for each in operation.parents if each is not None), None)
        return operation


def _fine(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def in_chain(operation: Operation) -> Operation:
    """Which of the operations that lead to a result that is not finite, none of which keeps such a
    value, is likely to have made it: the latest that is not defined everywhere."""
    at: Operation | None = operation
    for _ in range(LOOK_BACK):
        if at is None or not at.finite():
            break
        if at.title in GUARDED and _zero_guard(at) is not None:
            return at
        if any(bool((each < 0).any()) for each in at.saved.values() if at.title in ROOTS):
            return at
        at = at.source()
    return operation


def judge(operation: Operation) -> str | None:
    """The first operation that keeps something that is not finite."""
    inputs = {name: each for name, each in operation.inputs().items() if not _fine(each)}
    if inputs:
        return _of_input(operation, *next(iter(inputs.items())))
    result = next(each for each in operation.results().values() if not _fine(each))
    return of_result(operation, result)


def _of_input(operation: Operation, name: str, value: Tensor) -> str | None:
    """It was handed something that is not finite: by whom?"""
    for parameter, weight in operation.weights():
        if not _fine(weight):
            return fact("weights-nonfinite", tensor=parameter)
    maker = _maker(operation, name)
    if maker is not None:
        variable = getattr(maker.node, "variable", None)
        if variable is not None:
            return None if _fine(variable) else fact("weights-nonfinite")
        return of_result(maker, value)
    if not bool((torch.isnan(value) | (value == math.inf)).any()):
        return None  # -inf alone: a mask
    return _from_outside(operation, value)


_POSITIONS = {
    "Addmm": {"mat1": 1, "mat2": 2}, "Baddbmm": {"batch1": 1, "batch2": 2},
    "ConvolutionOverrideable": {"input": 0, "weight": 1},
}  # fmt: skip
_FIRST = ("self", "input", "mat1", "query", "log_probs", "condition")
_SECOND = ("other", "mat2", "weight", "target", "exponent", "key", "vec")


def _maker(operation: Operation, name: str) -> Operation | None:
    """The operation that made this input; None for what was handed in from outside."""
    place = _POSITIONS.get(operation.title, {}).get(name)
    if place is None:
        place = 0 if name in _FIRST else 1 if name in _SECOND else 2 if name == "value" else None
    if place is None or place >= len(operation.parents):
        return None
    parent = operation.parents[place]
    return None if parent is None else parent.itself()


def _from_outside(operation: Operation, value: Tensor) -> str | None:
    """It was not computed in this graph: data, as they were or as the cast to float16 left them."""
    if value.numel() <= 1:
        return None  # a factor, and no batch
    nan = bool(torch.isnan(value).any())
    known = frames.handed_in(value)
    if known is not None and known.finite and not nan and value.dtype is torch.float16:
        return fact(
            "forward-overflow", op="cast of the input to float16", name=known.name,
            module=operation.module, largest=f"{known.largest:.3g}", dtype=_dtype(value),
        )  # fmt: skip
    return fact(
        "nonfinite-input",
        kind="NaN" if nan else "inf",
        name=None if known is None else known.name,
    )


def of_result(operation: Operation, result: Tensor) -> str | None:
    """It made something that is not finite, of inputs that are."""
    whole = operation
    half = torch.float16 in (result.dtype, operation.dtype)
    where = _where(operation, result)
    if operation.title in SOFTMAX or operation.title.startswith("ScaledDotProduct"):
        rows = int(torch.isnan(result).all(-1).sum())
        masked = _masked(operation)
        if rows and masked:
            return fact("mask-overflow" if _half_near(operation, half) else "nan-born",
                        rows=rows, **where)  # fmt: skip
        if rows and half:
            return fact("forward-overflow", **where)
    # A softmax or a ReLU of finite values is finite: what came before it has done it.
    while operation.title in HARMLESS and (before := operation.source()) is not None:
        operation = before
    half = (
        torch.float16 in (result.dtype, operation.dtype)
        if operation is whole
        else (operation.dtype is torch.float16)
    )
    where = _where(operation, result)
    for parameter, weight in operation.weights():
        if not _fine(weight):
            return fact("weights-nonfinite", tensor=parameter)
    if not all(map(_fine, operation.inputs().values())):
        return None  # a factor that was inf itself
    guard = _zero_guard(operation)
    if guard is not None:
        constant, in_half = guard
        if constant is not None and in_half:
            return fact("epsilon-underflow", constant=constant or None, **where)
        return fact("nan-born", **where)
    inputs = [each for each in operation.inputs().values() if each.is_floating_point()]
    largest = max((float(each.abs().max()) for each in inputs if each.numel()), default=None)
    infinite = bool(torch.isinf(result).any())
    told = None if largest is None else f"{largest:.3g}"
    if operation.title in (
        "Log",
        "Sqrt",
        "Rsqrt",
        "Pow",
        "Acos",
        "Asin",
        "Acosh",
        "Atanh",
        "Log1P",
    ):
        return fact("nan-born", **where)
    if half:
        return fact("forward-overflow", largest=told, **where)
    if infinite or (largest is not None and largest > 1e18):
        return fact("diverged", largest=told, **where)
    return fact("nan-born", largest=told, **where)


def _where(operation: Operation, result: Tensor) -> dict[str, Any]:
    return {
        "op": _words(operation.title),
        "module": operation.module,
        "after": operation.after,
        "dtype": str(operation.dtype or result.dtype).removeprefix("torch."),
    }


def _half_near(operation: Operation, half: bool) -> bool:
    """Whether the scores were float16, although the softmax itself may be float32."""
    if half:
        return True
    stack: list[tuple[Operation, int]] = [(operation, 0)]
    while stack:
        each, depth = stack.pop()
        if any(saved.dtype is torch.float16 for saved in each.saved.values()):
            return True
        if depth < 3:
            stack += [(parent, depth + 1) for parent in each.parents if parent is not None]
    return False


def _masked(operation: Operation) -> bool:
    """Whether finite scores were masked on their way to a softmax."""
    if operation.title.startswith("ScaledDotProduct"):
        return True
    at = operation.source()
    for _ in range(LOOK_BACK):
        if at is None:
            return False
        if at.title in MASKING:
            scores = at.source()
            return scores is None or _product_fits(scores)
        at = at.source()
    return False


def _product_fits(operation: Operation) -> bool:
    """Whether the scores that were masked were finite: products are computed again."""
    at: Operation | None = operation
    for _ in range(LOOK_BACK):
        if at is None:
            return True
        left, right = at.saved.get("self"), at.saved.get("mat2")
        if left is not None and right is not None and left.dim() == right.dim() == 3:
            product = torch.bmm(left.float(), right.float())
            return bool(product.abs().max() <= 65504.0)
        at = at.source()
    return True


def _zero_guard(operation: Operation) -> tuple[str | None, bool] | None:
    """For a division by 0, or a log or power of 0: the guard in front of it, and whether it was
    float16. The guard is None where there is none, and "" where its value is not kept."""
    if operation.title not in GUARDED and not operation.title.startswith("Div"):
        return None
    divisor = operation.saved.get("other")
    place = 1
    if divisor is None:
        place = 0
        divisor = operation.saved.get("self")
        if divisor is None:
            result = next(iter(operation.results().values()), None)
            divisor = None if result is None else torch.where(torch.isinf(result), 0.0, 1.0)
    if divisor is None or not bool((divisor == 0).any()):
        return None
    half = divisor.dtype is torch.float16 or any(
        each.dtype is torch.float16 for each in operation.saved.values()
    )
    if len(operation.parents) <= place:
        return None, half
    at = operation.parents[place]
    for _ in range(LOOK_BACK):
        if at is None:
            return None, half
        if at.title == "Add" and None in at.parents:
            return "", half or any(t.dtype is torch.float16 for t in at.saved.values())
        if at.title in ("ClampMin", "Clamp", "Maximum"):
            return _least(at), half
        at = next((each for each in at.parents if each is not None), None)
    return None, half


def _least(operation: Operation) -> str:
    value = getattr(operation.node, "_saved_min", None)
    return f"{value:g}" if isinstance(value, (int, float)) else ""


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _words(title: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in title).strip().replace(" ", "_")
