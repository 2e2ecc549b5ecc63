"""Whether weights move at all: some of them are compared before and after a step.

An update below about half a unit in the last place of a weight leaves every bit of it as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Taken before a step, asked after it; where numbers come late, the answer comes with them.

    Attributes:
        scalars: for each sample, how many weights had a gradient, and how many of those kept
            every bit; once :meth:`look` was called.
    """

    __slots__ = ("_samples", "scalars")

    def __init__(self, parameters: list[Tensor], reading: Reading) -> None:
        self._samples: list[Sample] = []
        self.scalars: list[Tensor] = []
        stride = max(1, len(reading.index) // MOST_TENSORS)
        for position in reading.index[::stride]:
            parameter = parameters[position]
            gradient = parameter.grad
            if gradient is None or type(parameter.data) is not Tensor:
                continue
            strided = gradient.layout is torch.strided and gradient.is_contiguous()
            if strided and parameter.is_contiguous():
                before = _part(parameter).clone()
                self._samples.append(Sample(parameter, before, _part(gradient) != 0))

    def look(self) -> None:
        """The step is over."""
        for parameter, before, where in self._samples:
            same = (_part(parameter) == before) & where
            self.scalars += [where.sum(), same.sum()]

    def still(self, numbers: Sequence[float]) -> Tensor | None:
        """A parameter that stood still, if nearly all weights with a gradient did so.

        Args:
            numbers: what became of :attr:`scalars`.
        """
        with_gradient, kept = sum(numbers[0::2]), sum(numbers[1::2])
        if with_gradient < FEWEST or kept < STILL_SHARE * with_gradient:
            return None
        return next(
            sample.parameter
            for sample, same in zip(self._samples, numbers[1::2], strict=True)
            if same
        )


def _part(tensor: Tensor) -> Tensor:
    return tensor.detach().view(-1)[:MOST_VALUES]
