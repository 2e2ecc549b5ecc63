"""Numbers of whole tensors, for a step that is taken apart: reading them waits for the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 1 << 22
"""Values are looked at so many at a time: no second copy of a large tensor is ever made."""


class Extent(NamedTuple):
    """How far the values of a tensor reach."""

    largest: float | None
    """The largest finite magnitude; None where nothing is finite."""
    nonfinite: int
    size: int


def extent(tensor: Tensor) -> Extent | None:
    """None for what cannot be read: an empty tensor, one of a kind of its own, one that a CUDA
    graph is being captured from."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None
    if not tensor.numel() or tensor.is_complex() or capturing(tensor):
        return None
    try:
        with torch.no_grad():
            return _extent(tensor.detach())
    except (RuntimeError, NotImplementedError):  # inside vmap, on the meta device, in 8 bits
        return None


def _extent(values: Tensor) -> Extent:
    low, high = (float(each) for each in torch.aminmax(values))
    largest = max(abs(low), abs(high))
    if low - low == 0 and high - high == 0:  # neither inf nor NaN
        return Extent(largest, 0, values.numel())
    nonfinite, best = 0, -1.0
    for part in parts(values):
        finite = torch.isfinite(part)
        nonfinite += part.numel() - int(finite.sum())
        best = max(best, float(torch.where(finite, part.abs(), -1).max()))
    return Extent(best if best >= 0 else None, nonfinite, values.numel())


def parts(values: Tensor) -> Iterator[Tensor]:
    """All values, flat, in pieces."""
    yield from torch.split(values.reshape(-1), CHUNK)


def capturing(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being captured: nothing may be read then."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def local(tensor: Tensor) -> Tensor:
    """Without its graph, and of a DTensor our own part: never a collective."""
    tensor = tensor.detach()
    own: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own


def loss_value(loss: Tensor) -> float:
    """As a number; of several values their mean."""
    return float(loss) if loss.numel() == 1 else float(loss.double().mean())


def with_scale(root: Tensor, unscaled: Iterable[Tensor], losses: Sequence[Tensor]) -> Tensor | None:
    """What a backward pass starts from, if there is a scale in it.

    Args:
        unscaled: those of the roots that went through no scaler.
        losses: what a scaler was given; one that is off hands back the very loss.
    """
    if any(each is root for each in unscaled):
        return None
    same = bool(losses) and losses[0].data_ptr() == local(root).data_ptr()
    return None if same else root
