"""How the magnitudes of gradients lie over the powers of two.

On the CPU exponents are read off the bits and counted at once; of subnormals ``frexp`` gives them
exactly too. Elsewhere it gives all of them; they are sorted on the device and the edges of the
bins looked up in them: nothing waits for the device, and nothing depends on the order of atomic
additions; the counts follow in one copy that does not wait either.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ampwatch.probe.transfer import Transfer
from ampwatch.record import Exponents

MOST_VALUES = 1 << 17
"""Of a larger gradient only so many values are looked at, evenly spread: a share of a thousandth
is then known to a tenth of itself."""
MOST_FLOWING = 1 << 13
"""Of one that flows between modules: there are many, and together they tell as much."""
SEED = 20_260_102

LIMITS: dict[torch.dtype, tuple[int, int]] = {
    torch.float16: (-24, 15),
    torch.bfloat16: (-133, 127),
    torch.float32: (-149, 127),
    torch.float64: (-1074, 1023),
}
"""Exponents of the smallest subnormal and of the largest value of what gradients come in."""
SPECIALS = 3
"""Behind the bins: how many are 0, infinite and NaN."""


class ExponentCounts:
    """The counts of some gradients, perhaps still on their way from a device.

    Args:
        gradients: dense real tensors, as :func:`ampwatch.probe.gradients.dense` makes them; with
            none, they are added one by one and sent by :meth:`send`.
        choice: where sampling begins; a generator of our own, torch's belong to the training.
        most: values to look at of one gradient.
    """

    __slots__ = ("_choice", "_counts", "_limits", "_most", "_rows", "_sent")

    def __init__(
        self, gradients: Sequence[Tensor], choice: random.Random, most: int = MOST_VALUES
    ) -> None:
        self._choice = choice
        self._most = most
        self._rows: list[Exponents | None] = []
        self._counts: list[Tensor] = []
        self._limits: list[tuple[int, int]] = []
        self._sent: Transfer | None = None
        for gradient in gradients:
            self.add(gradient)
        if gradients:
            self.send()

    def add(self, gradient: Tensor) -> None:
        """Count one more."""
        with torch.no_grad():
            values = sample(gradient, self._choice, self._most)
            if values.device.type == "cpu":
                self._rows.append(count(values))
            else:
                self._rows.append(None)
                self._limits.append(_limits(values))
                self._counts.append(count_on_device(values))

    def send(self) -> None:
        """No more will come; those on a device are copied without waiting."""
        if not self._counts:
            return
        device = self._counts[0].device
        with torch.no_grad():
            packed = torch.cat([each.to(device, non_blocking=True) for each in self._counts])
        self._counts = []
        self._sent = Transfer((packed,), device)

    def rows(self) -> list[Exponents]:
        """One entry a gradient; where the copy is still on its way, this waits for it."""
        if self._sent is not None:
            numbers = [int(number) for number in self._sent.values()[0]]
            self._sent = None
            late = []
            at = 0
            for low, high in self._limits:
                end = at + high - low + 1
                specials = numbers[end : end + SPECIALS]
                late.append(packed_row(low, numbers[at:end], *specials))
                at = end + SPECIALS
            known = iter(late)
            self._rows = [next(known) if row is None else row for row in self._rows]
        return [row for row in self._rows if row is not None]


def sample(gradient: Tensor, choice: random.Random, most: int = MOST_VALUES) -> Tensor:
    """The values, flat, or of many every n-th one.

    n has no divisor in common with the gradient's size, so that no row or column is preferred.
    """
    size = gradient.numel()
    flat = _flat(gradient)
    if size <= most:
        return flat
    stride = math.ceil(size / most)
    while math.gcd(stride, size) != 1:
        stride += 1
    return flat[choice.randrange(stride) :: stride]


def _flat(gradient: Tensor) -> Tensor:
    """One dimension, without a copy where the values lie densely in whatever order."""
    if not gradient.is_contiguous() and gradient.dim() > 1:
        strides = gradient.stride()
        order = sorted(range(gradient.dim()), key=strides.__getitem__, reverse=True)
        gradient = gradient.permute(order)
    return gradient.reshape(-1)


def count(values: Tensor) -> Exponents:
    """The counts of one-dimensional values on the CPU."""
    if values.dtype is torch.float64:
        return _count(values.resolve_neg().numpy())
    # Exact; numpy has no bfloat16. The eight bits behind the sign are the exponent and 127.
    array = values.float().resolve_neg().contiguous().numpy()
    bits = array.view(np.int32)
    counts = np.bincount(((bits >> 23) & 255).astype(np.int64), minlength=256).tolist()
    if not counts[0] and not counts[255]:
        return packed_row(-127, counts, 0, 0, 0)
    zeros = counts[0] and int(np.count_nonzero(array == 0))
    if counts[0] > zeros:
        return _count(array)  # subnormal in float32: rare
    nan = counts[255] and int(np.count_nonzero(np.isnan(array)))
    return packed_row(-127, [0, *counts[1:255]], zeros, counts[255] - nan, nan)


def _count(array: npt.NDArray[Any]) -> Exponents:
    mantissas, exponents = np.frexp(array)
    usual = np.isfinite(mantissas) & (mantissas != 0)
    zeros = int(np.count_nonzero(mantissas == 0))
    nan = int(np.count_nonzero(np.isnan(mantissas)))
    exponents = exponents[usual]
    infinite = array.size - zeros - nan - exponents.size
    if not exponents.size:
        return Exponents(0, (), zeros, infinite, nan)
    low = int(exponents.min())
    counts = np.bincount(exponents - low)
    # frexp's mantissa lies in [0.5, 1): the value is at least 2^(exponent - 1).
    return Exponents(low - 1, tuple(counts.tolist()), zeros, infinite, nan)


def count_on_device(values: Tensor) -> Tensor:
    """The counts over all exponents of the format, then zeros, infinities and NaN, in int64."""
    low, high = _limits(values)
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    exponents = torch.frexp(values).exponent - 1
    # Nothing may select by a mask, whose size only the device knows: they go beyond the last bin.
    beyond = exponents.new_full((), high + 1)
    exponents = torch.where(torch.isfinite(values) & (values != 0), exponents, beyond)
    edges = torch.arange(low, high + 2, device=values.device, dtype=exponents.dtype)
    below = torch.searchsorted(exponents.sort().values, edges)
    specials = torch.stack([(values == 0).sum(), torch.isinf(values).sum(), values.isnan().sum()])
    return torch.cat([below.diff(), specials])


def packed_row(low: int, counts: Sequence[int], zeros: int, infinite: int, nan: int) -> Exponents:
    """The entry without the empty bins at both ends."""
    used = [place for place, number in enumerate(counts) if number]
    if not used:
        return Exponents(0, (), zeros, infinite, nan)
    return Exponents(low + used[0], tuple(counts[used[0] : used[-1] + 1]), zeros, infinite, nan)


def together(rows: Sequence[Exponents]) -> Exponents:
    """The counts of several, none of which has been divided by a scale yet, in one."""
    filled = [row for row in rows if row.counts]
    first = min((int(row.first) for row in filled), default=0)
    counts = [0] * max((int(row.first) - first + len(row.counts) for row in filled), default=0)
    for row in filled:
        for place, number in enumerate(row.counts, int(row.first) - first):
            counts[place] += number
    return Exponents(
        first,
        tuple(counts),
        sum(row.zeros for row in rows),
        sum(row.infinite for row in rows),
        sum(row.nan for row in rows),
    )


def divided(rows: Sequence[Exponents], scale: float) -> list[Exponents]:
    """The same without a scale: exact, since the bins move and not the values."""
    if scale == 1.0 or not 0 < scale < math.inf:
        return list(rows)
    doublings = math.log2(scale)
    return [replace(row, first=row.first - doublings) if row.counts else row for row in rows]


def _limits(values: Tensor) -> tuple[int, int]:
    return LIMITS.get(values.dtype, LIMITS[torch.float64])
