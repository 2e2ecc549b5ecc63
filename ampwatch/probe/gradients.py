"""Norms and non-finite counts of one optimizer's gradients, read while they carry the scale.

One fused pass a step; everything else only when that pass says that something is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ampwatch.probe.private import foreach_norm, sparse_values

ROW = 4096
LARGE = 8 * ROW
"""torch's CPU kernel adds up squares in float32 from end to end: a million values come out 1e-5
off. Rows of this length, added up in float64, are as fast and good to 1e-7."""


def dense(gradient: Tensor) -> Tensor:
    """The gradient's values as a real, dense, local tensor that norms can be taken of."""
    if hasattr(gradient, "to_local"):  # a DTensor: our own part of it, never a collective
        gradient = gradient.to_local()
    if gradient.layout is not torch.strided:
        gradient = sparse_values(gradient)
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient


class Reading:
    """The gradients of one optimizer at one moment.

    Attributes:
        index: for each gradient, which of the optimizer's parameters it belongs to.
        gradients: the gradients as dense real tensors; only until the step is over.
        norms: the L2 norm of each, of no dimension, on the gradient's own device.
    """

    __slots__ = ("gradients", "index", "norms")

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.index: list[int] = []
        self.gradients: list[Tensor] = []
        for position, parameter in enumerate(parameters):
            gradient = parameter.grad
            if gradient is not None:
                self.index.append(position)
                self.gradients.append(dense(gradient.detach()))
        self.norms = _norms(self.gradients)

    @property
    def device(self) -> torch.device | None:
        return self.gradients[0].device if self.gradients else None


def _norms(gradients: list[Tensor]) -> list[Tensor]:
    plain = [
        g.dtype is torch.float32 and (g.numel() < LARGE or g.device.type != "cpu")
        for g in gradients
    ]
    if all(plain):
        return foreach_norm(gradients) if gradients else []
    norms: list[Tensor] = [_norm(g) if not p else g for g, p in zip(gradients, plain, strict=True)]
    rest = [position for position, is_plain in enumerate(plain) if is_plain]
    if rest:
        for position, norm in zip(
            rest, foreach_norm([gradients[position] for position in rest]), strict=True
        ):
            norms[position] = norm
    return norms


def _norm(gradient: Tensor) -> Tensor:
    """The L2 norm of one large or unusual gradient, to about 1e-7."""
    if gradient.numel() == 0:
        return torch.zeros((), device=gradient.device)
    if gradient.dtype is not torch.float32:
        # float16 squares overflow at 256; bfloat16 sums stall. No float64 off the CPU: some
        # devices have none.
        return _l2(gradient, torch.float64 if gradient.device.type == "cpu" else torch.float32)
    if not gradient.is_contiguous():
        return _l2(gradient, torch.float64)
    flat = gradient.view(-1)
    whole = flat.numel() // ROW * ROW
    rows: Tensor = torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1)
    if whole < flat.numel():
        rows = torch.cat([rows, torch.linalg.vector_norm(flat[whole:]).view(1)])
    return _l2(rows, torch.float64)


def _l2(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor, dtype=dtype)
    return norm


def total_norm(norms: Sequence[float]) -> float:
    """The norm of all gradients taken together; inf and NaN come through."""
    return math.hypot(*norms)


def exact_norm(gradient: Tensor) -> float:
    """The norm of finite values whose squares overflow float32 (CPU: read at once)."""
    largest = float(gradient.abs().max()) if gradient.numel() else 0.0
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * float(torch.linalg.vector_norm(gradient.double() / largest))


def count_nonfinite(gradient: Tensor) -> Tensor:
    """How many elements are inf or NaN, of no dimension, on the device."""
    return gradient.numel() - torch.isfinite(gradient).sum()
