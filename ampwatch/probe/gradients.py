"""Norms and non-finite counts of one optimizer's gradients, read while they carry the scale.

One fused pass a step; everything else only when that pass says that something is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ampwatch.probe.private import foreach_norm

SHORT = 1024
"""torch's CPU kernel adds up squares in float32 from end to end: 16 thousand equal values come out
1e-5 off, a million 6e-5. Up to this length it is good to 8e-7 in the worst case."""
ROW = 512
LARGE = 32 * ROW
"""From here on rows of float32 sums, added up in float64, are as fast as float32 alone; between
``SHORT`` and this everything is float64."""
SMALLEST = 1e-15
"""Of a smaller norm some squares may have lost digits, or have become 0."""
CHUNK = 1 << 22
"""Half-precision gradients are widened this many values at a time, not all at once."""


class Reading:
    """The gradients of one optimizer at one moment.

    Attributes:
        index: for each gradient, which of the optimizer's parameters it belongs to.
        gradients: the gradients as dense real tensors; only until the step is over.
        half: whether any of them is float16 itself.
        device: where the first gradient lies; None without any.
        values: on the CPU, the L2 norm of each.
        norms: elsewhere, the same as tensors of no dimension on the gradient's own device.
    """

    __slots__ = ("device", "gradients", "half", "index", "norms", "values")

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.index: list[int] = []
        self.gradients: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.values: list[float] | None = None
        self.half = False
        odd: list[int] = []
        index, gradients, float32, strided = (
            self.index,
            self.gradients,
            torch.float32,
            torch.strided,
        )
        for position, parameter in enumerate(parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.requires_grad:
                gradient = gradient.detach()
            if (
                gradient.dtype is not float32
                or type(gradient) is not Tensor
                or gradient.layout is not strided
            ):
                gradient = dense(gradient)
                self.half = self.half or gradient.dtype is torch.float16
                odd.append(len(gradients))
            elif gradient.numel() > SHORT:
                odd.append(len(gradients))
            index.append(position)
            gradients.append(gradient)
        if not gradients:
            self.device = None
            return
        self.device = gradients[0].device
        kind = self.device.type
        if kind == "cpu":
            self.values = _values(gradients, odd)
        else:
            # In float64 squares neither overflow nor lose digits; the pass is bound by memory.
            # Some other devices have no float64.
            self.norms = foreach_norm(gradients, torch.float64 if kind == "cuda" else float32)


def dense(gradient: Tensor) -> Tensor:
    """The gradient's values as a real, dense, local tensor that norms can be taken of."""
    if hasattr(gradient, "to_local"):  # a DTensor: our own part of it, never a collective
        gradient = gradient.to_local()
    if gradient.layout is torch.sparse_coo:
        gradient = gradient.coalesce().values()  # repeated entries are added up
    elif gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    return torch.view_as_real(gradient.resolve_conj()) if gradient.is_complex() else gradient


def _values(gradients: list[Tensor], odd: list[int]) -> list[float]:
    """All norms in one fused pass; those at ``odd`` by themselves."""
    if not odd:
        return [norm.item() for norm in foreach_norm(gradients)]
    if len(odd) == len(gradients):
        return [_norm(gradient).item() for gradient in gradients]
    among = set(odd)
    plain = [gradient for place, gradient in enumerate(gradients) if place not in among]
    norms = [norm.item() for norm in foreach_norm(plain)]
    for place in odd:
        norms.insert(place, _norm(gradients[place]).item())
    return norms


def _norm(gradient: Tensor) -> Tensor:
    """The L2 norm of one large or unusual gradient on the CPU, to about 4e-7."""
    if gradient.numel() < LARGE or not gradient.is_contiguous():
        return _l2(gradient, torch.float64)
    flat = gradient.view(-1)
    if gradient.dtype is not torch.float32:
        # float16 squares overflow at 256, bfloat16 sums stall.
        return _l2(torch.stack([_l2(part, torch.float64) for part in torch.split(flat, CHUNK)]))
    whole = flat.numel() // ROW * ROW
    rows: Tensor = torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1)
    if whole < flat.numel():
        rows = torch.cat([rows, torch.linalg.vector_norm(flat[whole:]).view(1)])
    return _l2(rows, torch.float64)


def _l2(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor, dtype=dtype)
    return norm


def total_norm(norms: Sequence[float]) -> float:
    """The norm of all gradients taken together; inf and NaN come through."""
    total = math.hypot(*norms)
    if total == math.inf and any(norm != norm for norm in norms):
        return math.nan  # hypot prefers an infinity
    return total


def doubtful(gradient: Tensor, norm: float) -> bool:
    """Whether float32 squares were too large or too small for this norm to be right."""
    if norm == 0.0:
        return gradient.numel() < LARGE  # a large layer that is dead is not looked at twice
    return not SMALLEST <= norm < math.inf


def exact_norm(gradient: Tensor) -> float:
    """The norm of finite values whose squares do not fit float32 (CPU: read at once)."""
    largest = float(gradient.abs().max()) if gradient.numel() else 0.0
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * float(torch.linalg.vector_norm(gradient.double() / largest))


def count_nonfinite(gradient: Tensor) -> Tensor:
    """How many elements are inf or NaN, of no dimension, on the device."""
    return gradient.numel() - torch.isfinite(gradient).sum()
