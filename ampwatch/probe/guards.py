"""What stands in front of an operation to keep it finite: a small constant, or a mask."""

from __future__ import annotations

from collections import deque

import torch

from ampwatch.formats import FLOAT16
from ampwatch.probe.operations import PASSING, Operation
from ampwatch.probe.values import Values

GUARDED = ("Div", "Log", "Rsqrt", "Reciprocal", "Log2", "Log10", "Pow", "Logit")
"""Operations that people guard with a small constant."""
LOWER_LIMITS = ("ClampMin", "Clamp")
ZERO_OF_ZERO = (
    *PASSING, "Add", "Mul", "Sqrt", "Pow", "Sum", "Mean", "Prod", "Abs", "Neg", "Norm",
    "LinalgVectorNorm", "Amax", "Max", "Maximum", "Index", "Cat", "Stack",
)  # fmt: skip
"""What they make of 0 is 0: a guard that was lost before them is missing after them."""
MASKING = ("Add", "MaskedFill", "Where", "Sub", "SWhere")
LOOK_BACK = 12


def half_near(operation: Operation, half: bool) -> bool:
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


def masked(operation: Operation) -> bool:
    """Whether finite scores were masked on their way to a softmax."""
    if operation.title.startswith("ScaledDotProduct"):
        return True
    mask = _mask(operation)
    if mask is None:
        return False
    scores = product_behind(operation)
    return scores is None or scores.product.answer() <= FLOAT16.largest


def product_behind(operation: Operation) -> Operation | None:
    """The product whose masked scores a softmax got: whether they were finite is not kept, and
    must be computed again."""
    at = _mask(operation)
    at = None if at is None else at.source()
    for _ in range(LOOK_BACK):
        if at is None or at.multiplies:
            return at
        at = at.source()
    return None


def _mask(operation: Operation) -> Operation | None:
    """What masked the scores of a softmax."""
    at = operation.source()
    for _ in range(LOOK_BACK):
        if at is None or at.title in MASKING:
            return at
        at = at.source()
    return None


def zero_guard(operation: Operation) -> tuple[str | None, bool] | None:
    """For a division by 0, or a log or negative power of 0: the guard in front of it, and whether
    it was float16. The guard is None where there is none, and "" where its value is not kept."""
    if operation.title == "Logit":
        return _edges_of_logit(operation)
    if operation.title not in GUARDED or not _infinite_at_zero(operation):
        return None
    divisor = operation.saved.get("other")
    place = 1
    if divisor is None:
        place = 0
        divisor = operation.saved.get("self")
    if divisor is not None:
        zero = divisor.zero
    else:
        result = next(iter(operation.results().values()), None)
        zero = result is not None and result.infinite
    if not zero:
        return None
    half = any(each.dtype is torch.float16 for each in operation.saved.values())
    if len(operation.parents) <= place:
        return None, half
    return guard_behind(operation.parents[place], half)


def guard_behind(operation: Operation | None, half: bool) -> tuple[str | None, bool]:
    """The guard of a value that is 0: the addition of a constant, or a lower limit, from which only
    operations lead on that make 0 of 0; and whether any of them was float16.

    Args:
        half: whether the value itself was float16.
    """
    waiting: deque[tuple[Operation | None, bool]] = deque([(operation, half)])
    for _ in range(LOOK_BACK):
        if not waiting:
            break
        at, half = waiting.popleft()
        if at is None:
            continue
        half = half or at.dtype is torch.float16
        if at.title == "Add" and None in at.parents:
            if not any(parent is not None and _without_zeros(parent) for parent in at.parents):
                return "", half
        elif (at.title == "Maximum" and None in at.parents) or _of_cosine_similarity(at):
            return "", half
        elif at.title in LOWER_LIMITS:
            least = at.setting("min")
            if isinstance(least, Values) or (isinstance(least, (int, float)) and least > 0):
                return "" if isinstance(least, Values) else f"{least:g}", half
        elif at.title == "Div":
            waiting.append((at.parents[0], half))
        elif at.title in ZERO_OF_ZERO:
            waiting.extend((parent, half) for parent in at.parents)
    return None, half


def _infinite_at_zero(operation: Operation) -> bool:
    """Whether it is one that has no finite value at 0: of powers only the negative ones."""
    if operation.title != "Pow":
        return True
    power = operation.setting("exponent")
    if isinstance(power, Values):
        return power.negative
    return isinstance(power, (int, float)) and power < 0


def _edges_of_logit(operation: Operation) -> tuple[str | None, bool] | None:
    """logit is infinite at 0 and 1; its eps keeps a probability away from both."""
    values = operation.saved.get("self")
    if values is None or not (values.zero or values.one):
        return None
    limit = operation.setting("eps")
    return None if limit is None else f"{limit:g}", values.dtype is torch.float16


def _of_cosine_similarity(operation: Operation) -> bool:
    """torch's own cosine_similarity limits a copy of the norm where no graph sees it
    (aten/src/ATen/native/Distance.cpp)."""
    first = operation.parents[0] if operation.parents else None
    return operation.title == "Clone" and first is not None and first.title == "LinalgVectorNorm"


def _without_zeros(operation: Operation) -> bool:
    """Whether what it has made is kept, and nowhere 0: then it is no guard that has failed."""
    return any(not result.zero for result in operation.results().values())
