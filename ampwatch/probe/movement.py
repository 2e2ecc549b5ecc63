"""Whether weights move at all: some of them are compared before and after a step.

An update below about half a unit in the last place of a weight leaves every bit of it as it was.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ampwatch.probe.gradients import Reading

MOST_TENSORS = 8
MOST_VALUES = 1024
"""A part of each is enough to tell nearly all from nearly none."""
FEWEST = 8
STILL_SHARE = 0.9


class Sample(NamedTuple):
    """Part of one parameter before a step."""

    parameter: Tensor
    before: Tensor
    with_gradient: Tensor
    """Where its gradient is not 0."""


class Movement:
    """Taken before a step, asked after it. On the CPU only: elsewhere a look would wait."""

    __slots__ = ("_samples",)

    def __init__(self, parameters: list[Tensor], reading: Reading) -> None:
        self._samples: list[Sample] = []
        stride = max(1, len(reading.index) // MOST_TENSORS)
        for position in reading.index[::stride]:
            parameter = parameters[position]
            gradient = parameter.grad
            if gradient is None or type(parameter.data) is not Tensor:
                continue
            plain = gradient.layout is torch.strided and parameter.device.type == "cpu"
            if plain and parameter.is_contiguous() and gradient.is_contiguous():
                before = _part(parameter).clone()
                self._samples.append(Sample(parameter, before, _part(gradient) != 0))

    def still(self) -> tuple[float, Tensor] | None:
        """Share of the weights with a gradient that kept every bit, and one such parameter."""
        with_gradient = kept = 0
        example = None
        for parameter, before, where in self._samples:
            same = int(((_part(parameter) == before) & where).sum())
            with_gradient += int(where.sum())
            kept += same
            if same and example is None:
                example = parameter
        if with_gradient < FEWEST or example is None:
            return None
        return kept / with_gradient, example


def _part(tensor: Tensor) -> Tensor:
    return tensor.detach().view(-1)[:MOST_VALUES]
