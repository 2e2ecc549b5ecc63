"""A few values of one parameter and its gradient, read at each stage of a step."""

from __future__ import annotations

import torch
from torch import Tensor

from ampwatch.formats import FLOAT16
from ampwatch.probe.anatomy_values import extent, local, parts
from ampwatch.probe.dtypes import dtype_name
from ampwatch.record import Followed

FEWEST = 3
"""Values that are followed, where there are so many."""
SAMPLE = 1 << 20
"""Of a larger gradient the values to follow are chosen among so many, evenly spread."""


def can_follow(parameter: Tensor) -> bool:
    """Whether its values and those of its gradient can be read one by one."""
    gradient = parameter.grad
    return (
        gradient is not None
        and gradient.layout is torch.strided
        and not gradient.is_complex()
        and local(gradient).shape == local(parameter).shape
        and local(gradient).numel() > 0
    )


class Follower:
    """Made while the gradient still carries the scale, and before the step.

    Args:
        parameter: one that :func:`can_follow`.
        name: as the user's code has it.
        scale: what is in its gradient.
    """

    def __init__(self, parameter: Tensor, name: str, scale: float | None) -> None:
        gradient = local(parameter.grad)  # type: ignore[arg-type]
        self._parameter = parameter
        self._name = name
        self._scale = scale
        self._shape = tuple(gradient.shape)
        self._flat = choose(gradient)
        index = torch.tensor(self._flat, device=gradient.device)
        self._index = torch.unravel_index(index, gradient.shape) if gradient.dim() else ()
        self._gradient_dtype = dtype_name(gradient.dtype)
        self._extent = extent(gradient)
        self._zeros, self._flushed = _lost(gradient, scale)
        self._scaled = self._values(gradient)
        self._before = self._values(parameter)
        self._unscaled: tuple[float, ...] | None = None
        self._clipped: tuple[float, ...] | None = None

    def before_clip(self) -> None:
        """The gradients are about to be clipped; only the first clip is told."""
        if self._unscaled is None:
            self._unscaled = self.gradient()

    def before_step(self) -> None:
        """The gradients are as the optimizer takes them."""
        if self._clipped is None:
            self._clipped = self.gradient()

    def gradient(self) -> tuple[float, ...] | None:
        """What the gradient holds now; None if the loop has taken it away."""
        gradient = self._parameter.grad
        return None if gradient is None else self._values(gradient)

    def done(self, *, clips: bool, divided: bool) -> Followed:
        """The step is over.

        Args:
            clips: whether gradients were clipped.
            divided: whether the gradients themselves were divided by the scale; a fused optimizer
                divides in its own kernel.
        """
        self.before_step()
        last = self._clipped or self._scaled
        by_hand = tuple(value / self._scale for value in self._scaled) if self._scale else last
        if not divided:
            last = by_hand
        unscaled = self._unscaled if clips and self._unscaled is not None else last
        whole = self._extent
        return Followed(
            name=self._name,
            dtype=dtype_name(self._parameter.dtype),
            gradient_dtype=self._gradient_dtype,
            shape=self._shape,
            index=tuple(self._flat),
            scaled=self._scaled,
            unscaled=unscaled,
            before=self._before,
            after=self._values(self._parameter),
            clipped=last if clips else (),
            largest=None if whole is None else whole.largest,
            zeros=self._zeros,
            nonfinite=0 if whole is None else whole.nonfinite,
            flushed=self._flushed,
        )

    def _values(self, tensor: Tensor) -> tuple[float, ...]:
        values = local(tensor)
        picked = values[self._index] if self._index else values.reshape(1)
        return tuple(picked.cpu().double().tolist())


def choose(gradient: Tensor) -> list[int]:
    """Where to look: at the first inf or NaN, at the largest, the middle and the smallest
    magnitude that is not 0, and at a 0 if there is one; in this order, without repeats. Where that
    is too little to show, at the first, the middle and the last value."""
    flat = gradient.reshape(-1)
    stride = max(1, flat.numel() // SAMPLE)
    sample = flat[::stride].float() if flat.dtype != torch.float64 else flat[::stride]
    places: list[int] = []
    finite = torch.isfinite(sample)
    if extent(gradient) is not None and not bool(finite.all()):
        places.append(int((~finite).int().argmax()) * stride)
    elif stride > 1:
        places += _bad_place(flat)
    size = sample.abs()
    usual = (finite & (size > 0)).nonzero().reshape(-1)
    if usual.numel():
        order = usual[size[usual].argsort(descending=True, stable=True)]
        places += [int(order[at]) * stride for at in (0, order.numel() // 2, -1)]
    zero = (sample == 0).nonzero().reshape(-1)
    if zero.numel():
        places.append(int(zero[0]) * stride)
    if len(places) < FEWEST:  # nothing but NaN, or nothing but 0
        places += [0, flat.numel() // 2, flat.numel() - 1]
    return list(dict.fromkeys(places))


def _bad_place(flat: Tensor) -> list[int]:
    """The first inf or NaN that a sample has missed."""
    at = 0
    for part in parts(flat):
        bad = ~torch.isfinite(part)
        if bool(bad.any()):
            return [at + int(bad.int().argmax())]
        at += part.numel()
    return []


def _lost(gradient: Tensor, scale: float | None) -> tuple[int, int | None]:
    """How many values are 0, and how many float16 would make 0 without the scale."""
    limit = None if not scale else 2.0**FLOAT16.flushed * scale
    zeros = flushed = 0
    for part in parts(gradient):
        size = (part if part.dtype == torch.float64 else part.float()).abs()
        none = int((size == 0).sum())
        zeros += none
        if limit is not None:
            flushed += int((size <= limit).sum()) - none
    return zeros, None if limit is None else flushed
