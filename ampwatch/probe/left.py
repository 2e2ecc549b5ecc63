"""Gradients that a skipped step leaves behind: whether they were cleared since.

A tensor counts how often it was changed in place. So whether somebody has cleared a gradient is
known without looking at its values, which on a device would wait.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from torch import Tensor

from ampwatch.probe.parameters import Parameters
from ampwatch.probe.private import times_changed


class Left:
    """One of the gradients, as it was when its step was skipped."""

    __slots__ = ("_changed", "_gradient", "_parameter", "stale")

    def __init__(self, parameter: Tensor, gradient: Tensor) -> None:
        self._parameter = weakref.ref(parameter)
        self._gradient = weakref.ref(gradient)
        self._changed = times_changed(gradient)
        self.stale = False
        """Whether every backward pass since has begun with it."""

    @classmethod
    def of(cls, parameters: Iterable[Tensor]) -> Left | None:
        """The first that there is."""
        for parameter in parameters:
            if parameter.grad is not None:
                return cls(parameter, parameter.grad)
        return None

    def unchanged(self) -> bool:
        """A backward pass begins: whether the gradient is as it was left."""
        if self.stale:
            return True  # the pass before has added to it
        parameter, gradient = self._parameter(), self._gradient()
        self.stale = (
            parameter is not None
            and gradient is not None
            and parameter.grad is gradient
            and times_changed(gradient) == self._changed
        )
        return self.stale

    def name(self, names: Parameters) -> str | None:
        parameter = self._parameter()
        return None if parameter is None else names.name(parameter, 0, 0)
