"""Which variables of a loop hold its batches, to be looked at when a loss was not finite.

Where numbers come late, the graph of such a loss is gone by the time that this is known. But the
batch is not: it is still in the variable that it was in at every step before.

A variable that holds something else by then must not be blamed: the state that a network hands on,
or an output that was kept. So a variable counts that held, bit for bit, what a graph was given from
outside; and that nobody had put anything else into until the step was over.
"""

from __future__ import annotations

import contextlib
import weakref
from types import CodeType
from typing import TypeAlias

import torch
from torch import Tensor

from ampwatch.formats import FLOAT16
from ampwatch.probe import frames, verdicts
from ampwatch.probe.frames import Held, address
from ampwatch.probe.inquest import plainly
from ampwatch.probe.operations import Naming, operations_of
from ampwatch.probe.private import times_changed
from ampwatch.probe.values import UNREADABLE, Values, readable
from ampwatch.record.facts import fact

LEARNED_PASSES = 4
"""Several networks of one loop may get batches of their own."""
LEARNED_STEPS = 4
"""At so many it is seen whether a variable is left alone until the step is over."""
MOST_COPIES = 8
"""So many variables of the size of a copy are compared with it."""
SAME_SUM = 1e-9
"""Two float64 sums of the same numbers in another order differ by less than this part of the sum of
their magnitudes; a layout that the model has changed is the same batch."""

Place: TypeAlias = tuple[CodeType, str]
"""A variable of a function."""


class Batches:
    """Learned at the first steps of a loop."""

    def __init__(self) -> None:
        self._passes = self._steps = 0
        self._given: set[Place] = set()
        """What graphs were given."""
        self._perhaps: dict[Place, list[Tensor]] = {}
        """Of what they may have been given a copy: whether it was one, as scalars on the device."""
        self._lowered: dict[Place, str | None] = {}
        """Those that are cast to float16, and the module that gets them."""
        self._left_alone: dict[Place, bool] = {}
        self._now: dict[Place, tuple[weakref.ref[Tensor], int]] = {}
        """What was in them at the latest backward pass, and how often it had been changed."""

    @property
    def learning(self) -> bool:
        return self._steps < LEARNED_STEPS

    def before_backward(self, roots: list[Tensor], naming: Naming, *, readable: bool) -> None:
        """A backward pass begins, of a step that is still learned from.

        Args:
            readable: whether what graphs keep may be read.
        """
        variables = list(frames.held())
        if readable and self._passes < LEARNED_PASSES:
            self._passes += 1
            with plainly(roots):
                self._learn(roots, naming, variables)
        self._now = {
            _place(each): (weakref.ref(each.tensor), times_changed(each.tensor))
            for each in reversed(variables)
            if _place(each) in self._given or _place(each) in self._perhaps
        }

    def _learn(self, roots: list[Tensor], naming: Naming, variables: list[Held]) -> None:
        by_storage: dict[int, list[Held]] = {}
        by_size: dict[int, list[Held]] = {}
        for each in variables:
            where = _storage(each.tensor)
            if where is not None:
                by_storage.setdefault(where, []).append(each)
                by_size.setdefault(each.tensor.numel(), []).append(each)
        for operation in operations_of(roots, naming):
            for value in verdicts.from_outside(operation):
                where = _storage(value.tensor)
                if where is None or value.tensor is None:
                    continue
                parts = [x for x in by_storage.get(where, ()) if x.tensor.numel() >= value.size]
                if parts:
                    least = min(x.tensor.numel() for x in parts)  # not the whole data set
                    found = [x for x in parts if x.tensor.numel() == least]
                    self._given.update(map(_place, found))
                else:
                    found = by_size.get(value.size, [])[:MOST_COPIES]
                    for each in found:
                        self._compare(each, value.tensor)
                for each in found:
                    if value.dtype is torch.float16 and each.tensor.dtype is not torch.float16:
                        self._lowered.setdefault(_place(each), operation.module)

    def _compare(self, held: Held, copy: Tensor) -> None:
        place = _place(held)
        if place not in self._given:
            with contextlib.suppress(*UNREADABLE):
                self._perhaps.setdefault(place, []).append(_same(held.tensor, copy))

    def after_step(self) -> None:
        """A step is over that was learned from: whether the variables still hold what they did."""
        held = {_place(each): each.tensor for each in reversed(list(frames.held()))}
        for place, (tensor, changed) in self._now.items():
            if place in held:
                alone = held[place] is tensor() and times_changed(held[place]) == changed
                self._left_alone[place] = alone and self._left_alone.get(place, True)
        self._now = {}
        self._steps += 1

    def trouble(self) -> str | None:
        """The fact that a batch holds inf or NaN, or numbers beyond float16 where it is cast to
        that; read at once, so only to be asked when nothing is on its way on the device."""
        self._given.update(place for place, same in self._perhaps.items() if any(map(bool, same)))
        self._perhaps.clear()
        for each in frames.held():
            place = _place(each)
            if place not in self._given or not self._left_alone.get(place, False):
                continue
            values = Values(each.tensor)
            if values.above:  # -inf alone is a mask
                return fact("nonfinite-input", kind="NaN" if values.nan else "inf", name=each.name)
            if place in self._lowered and values.largest > FLOAT16.largest:
                return verdicts.of_batch(each.name, values.largest, self._lowered[place])
        return None


def _place(held: Held) -> Place:
    return held.code, held.name


def _storage(tensor: Tensor | None) -> int | None:
    """Where the memory of a plain tensor begins."""
    if tensor is None or address(tensor) is None or not tensor.is_floating_point():
        return None
    return tensor.untyped_storage().data_ptr()


def _same(held: Tensor, copy: Tensor) -> Tensor:
    """Whether a copy has the values of a variable, in any order, which may still be on the host; on
    the device."""
    b = _marks(copy)
    a = _marks(held.to(copy.dtype)).to(b.device, b.dtype, non_blocking=True)
    near = (a[3:] - b[3:]).abs() <= SAME_SUM * b[3]
    several = b[0] != b[1]  # a single value may be anything's
    return (a[:3] == b[:3]).all() & near.all() & several


def _marks(values: Tensor) -> Tensor:
    """What does not depend on the order: the extremes of finite values, how many there are, and
    the sums of their magnitudes and of themselves."""
    values = readable(values)
    finite = torch.isfinite(values)
    values = torch.where(finite, values, torch.zeros_like(values))
    wide = torch.float64 if values.device.type in ("cpu", "cuda") else torch.float32
    whole = [finite.sum(dtype=wide), values.abs().sum(dtype=wide), values.sum(dtype=wide)]
    return torch.stack([values.min().to(wide), values.max().to(wide), *whole])
