"""What stands in front of an operation to keep it finite: a small constant, or a mask."""

from __future__ import annotations

import torch

from ampwatch.probe.operations import Operation

GUARDED = ("Div", "Log", "Rsqrt", "Reciprocal", "Log2", "Log10", "Pow")
"""Operations that people guard with a small constant."""
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


def zero_guard(operation: Operation) -> tuple[str | None, bool] | None:
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
