"""Which variables of a loop hold its batches, to be looked at when a loss was not finite.

Where numbers come late, the graph of such a loss is gone by the time that this is known. But the
batch is not: it is still in the variable that it was in at every step before.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ampwatch.probe import frames, verdicts
from ampwatch.probe.inquest import plainly
from ampwatch.probe.operations import Naming, operations_of
from ampwatch.probe.values import Values
from ampwatch.record.facts import fact

LEARNED_PASSES = 4
"""Several networks of one loop may get batches of their own."""
HALF_LARGEST = torch.finfo(torch.float16).max


class Lowered(NamedTuple):
    """A batch that is cast to float16."""

    module: str | None
    """What gets it."""


class Batches:
    """Learned from the graphs of losses that were finite.

    Attributes:
        passes: backward passes that were learned from.
    """

    def __init__(self) -> None:
        self._names: dict[str, Lowered | None] = {}
        self.passes = 0

    def learn(self, roots: list[Tensor], naming: Naming) -> None:
        """A backward pass begins: which variables hold what its graph was given."""
        self.passes += 1
        variables = list(frames.held())
        with plainly(roots):
            for operation in operations_of(roots, naming):
                for value in verdicts.from_outside(operation):
                    for name in _holding(value, variables):
                        lowered = value.dtype is torch.float16
                        self._names[name] = Lowered(operation.module) if lowered else None

    def trouble(self) -> str | None:
        """The fact that a batch holds inf or NaN, or numbers beyond float16 where it is cast to
        that; read at once, so only to be asked when nothing is on its way on the device."""
        for name, tensor in frames.held():
            if name not in self._names:
                continue
            values, lowered = Values(tensor), self._names[name]
            if not values.finite:
                return fact("nonfinite-input", kind="NaN" if values.nan else "inf", name=name)
            if lowered is not None and values.largest > HALF_LARGEST:
                return verdicts.of_batch(name, values.largest, lowered.module)
        return None


def _holding(value: Values, variables: list[tuple[str, Tensor]]) -> list[str]:
    """Variables whose batch this is a part of; or else, of which it may be a copy by its size, if
    there are not several: one of them might be what the model has made of the other."""
    given = value.tensor
    if given is None or not value.plain:
        return []
    where = given.untyped_storage().data_ptr()
    plain = [(name, each) for name, each in variables if Values(each).plain]
    same = [name for name, each in plain if each.untyped_storage().data_ptr() == where]
    if same:
        return same
    copied = {
        each.untyped_storage().data_ptr(): name
        for name, each in plain
        if each.numel() == value.size
    }
    return list(copied.values()) if len(copied) == 1 else []
