"""What is looked at only when something has gone wrong: the cause of a loss that is not finite,
gradients that were never cleared, and running statistics that a skipped step has spoilt.

A step that is all right costs one look at its loss.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

from ampwatch.probe.inquest import inquire
from ampwatch.probe.movement import STILL_SHARE
from ampwatch.probe.operations import Naming
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.packing import PackingWatch
from ampwatch.probe.parameters import Parameters
from ampwatch.probe.statistics import spoilt
from ampwatch.record.facts import fact

MOST_INQUESTS = 24
"""So many losses are looked into; by then it is known where inf and NaN come from."""
RESTED_STEPS = 1000
"""After so many backward passes without trouble as many again are looked into."""
MOST_LOOKS = 64
"""So often the running statistics are looked at."""


class Trouble:
    """Armed by inf and NaN.

    Args:
        names: of the parameters, and the models they are in.
        facts: of the step that is being taken.
        naming: of parameters that an optimizer may not have shown yet.
    """

    def __init__(self, names: Parameters, facts: set[str], naming: Naming) -> None:
        self.packing = PackingWatch()
        self.at_once = True
        """Whether numbers are there without waiting for a device: nothing is looked at else."""
        self._names = names
        self._facts = facts
        self._named = naming
        self._inquests = self._looks = self._calm = 0
        self._bad_loss = False
        self._suspects: list[OptimizerState] = []
        self._told: set[str] = set()

    def before_backward(self, roots: list[Tensor], losses: Callable[[], list[Tensor]]) -> None:
        """A backward pass begins.

        Args:
            losses: what these roots were made of, without the scale.
        """
        if not self.at_once:
            return
        if self._suspects:
            self._ask_suspects()
        root = roots[0]
        if root.device.type != "cpu" or root.numel() != 1:
            return
        value = root.item()
        if value - value == 0:
            self._calm += 1
            if self._calm > RESTED_STEPS:
                self._inquests = 0
            return
        if all(_finite(loss) for loss in losses()):
            return  # the loss is all right, the scale was too much for it
        self._calm = 0
        self._bad_loss = True
        if self._inquests >= MOST_INQUESTS or self.packing.seen:
            return
        self._inquests += 1
        found = inquire(roots, self._named)
        if found is not None:
            self._facts.add(found)

    def after_read(self, state: OptimizerState) -> None:
        """Gradients were read, and they hold inf or NaN now, or did so before."""
        stale, state.stale = state.stale, None
        suspect = self._bad_parameter(state)
        if suspect is None:
            state.suspect = None
            self._suspects = [each for each in self._suspects if each is not state]
            return
        if stale:
            self._facts.add(fact("stale-gradients", tensor=self._names.name(suspect, 0, 0)))
        state.suspect = weakref.ref(suspect)
        if state not in self._suspects:
            self._suspects.append(state)

    def before_record(self, state: OptimizerState) -> None:
        """A step is over; its forward pass may have spoilt running statistics."""
        if not (self.at_once and (self._bad_loss or state.counts is not None)):
            return
        self._bad_loss = False
        if self._looks >= MOST_LOOKS:
            return
        self._looks += 1
        for module, buffer in spoilt(self._names.models()):
            if module not in self._told:
                self._told.add(module)
                self._facts.add(fact("batchnorm-statistics", module=module, buffer=buffer))

    def at_detail(self, state: OptimizerState, optimizer: Optimizer) -> None:
        """A step with figures of each parameter is over: what has no gradient, what stood still."""
        absent = [each for each in state.parameters if each.requires_grad and each.grad is None]
        if absent and state.reading is not None and state.reading.index:
            name = self._names.name(absent[0], 0, 0)
            self._facts.add(fact("missing-gradients", tensor=name, count=len(absent)))
        movement = None if state.movement is None else state.movement.still()
        rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
        if movement is not None and movement[0] >= STILL_SHARE and rate is not None and rate > 0:
            kept = movement[1]
            dtype = str(kept.dtype).removeprefix("torch.")
            name = self._names.name(kept, 0, 0)
            self._facts.add(fact("weights-still", tensor=name, dtype=dtype))

    def close(self) -> None:
        self._suspects.clear()

    def _ask_suspects(self) -> None:
        """Whether what was inf or NaN at the step before is so still, before this pass begins.

        In a loop with several networks a pass of one comes before the gradients of the other are
        cleared; so it must be so at every pass since.
        """
        for state in self._suspects:
            parameter = None if state.suspect is None else state.suspect()
            gradient = None if parameter is None else parameter.grad
            bad = gradient is not None and not bool(torch.isfinite(gradient).all())
            state.stale = bad if state.stale is None else state.stale and bad

    def _bad_parameter(self, state: OptimizerState) -> Tensor | None:
        reading = state.reading
        if reading is None or state.counts is None or reading.values is None:
            return None
        for position, count in enumerate(state.counts):
            if count:
                return state.parameters[reading.index[position]]
        return None


def _finite(loss: Tensor) -> bool:
    return bool(torch.isfinite(loss).all())
