"""Which optimizers are watched, and what is going on with each."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.parameters import Parameters, trained


class Optimizers:
    """State by the optimizer that really steps: a framework may step an inner one that shares
    its parameters with the one that was handed over.

    Args:
        names: of the models' parameters.
        models: theirs are ours too.
        given: the optimizers that were handed over; with neither, every optimizer is ours.
    """

    def __init__(
        self, names: Parameters, models: Sequence[nn.Module], given: Sequence[Optimizer]
    ) -> None:
        self.everything = not models and not given
        self.states: dict[int, OptimizerState] = {}
        self.foreign: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """Optimizers that were seen and have nothing of ours."""
        self.others: set[int] = set()
        """ids of the parameters that those train."""
        self._names = names
        self._given = [weakref.ref(optimizer) for optimizer in given]
        self.own = {
            id(parameter)
            for source in (*(model.parameters() for model in models), *map(trained, given))
            for parameter in source
        }
        """ids of the parameters that are watched."""

    def state(self, optimizer: Optimizer) -> OptimizerState | None:
        """Its state, or None if it is not ours."""
        state = self.states.get(id(optimizer))
        if state is not None and state.ref() is optimizer:
            return state
        if not self.everything:
            if optimizer in self.foreign:
                return None
            ids = set(map(id, trained(optimizer)))
            if ids.isdisjoint(self.own) and ids.isdisjoint(self._names.ids()):
                self.foreign.add(optimizer)
                self.others |= ids
                return None
            self.own |= ids
        return self._new(optimizer)

    def _new(self, optimizer: Optimizer) -> OptimizerState:
        alive = {key: each for key, each in self.states.items() if each.ref() is not None}
        kind = type(optimizer).__name__
        same = sum(each.label.split(" ")[0] == kind for each in alive.values())
        state = OptimizerState(optimizer, kind if same == 0 else f"{kind} {same + 1}")
        self.states = {**alive, id(optimizer): state}
        return state

    def holding(self, ids: set[int]) -> list[tuple[OptimizerState, Optimizer]]:
        """Those that train any of these parameters, also before their first step."""
        for ref in self._given:
            if (given := ref()) is not None:
                self.state(given)
        return [
            (state, optimizer)
            for state in self.states.values()
            if (optimizer := state.ref()) is not None
            and not ids.isdisjoint(map(id, trained(optimizer)))
        ]

    def together(self) -> bool:
        """Whether the gradients of all were made by the same backward pass."""
        return len({state.read_at for state in self.states.values()}) <= 1

    def overlaps(self, optimizers: Sequence[Optimizer]) -> bool:
        """Whether any of these is watched already."""
        return any(not self.own.isdisjoint(map(id, trained(each))) for each in optimizers)

    def parameters(self) -> list[Tensor]:
        """All that is trained."""
        return [
            parameter
            for state in self.states.values()
            if (optimizer := state.ref()) is not None
            for parameter in trained(optimizer)
        ]
