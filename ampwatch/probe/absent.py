"""Parameters that never get a gradient."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.parameters import Parameters
from ampwatch.record.facts import fact


class Absent:
    """What has had no gradient at any detail step so far.

    Those of a branch that is taken now and then are let go, as far as the optimizer's state or a
    detail step show it.

    Args:
        names: of the parameters.
    """

    def __init__(self, names: Parameters) -> None:
        self._names = names
        self._so_far: dict[str, tuple[set[int], int]] = {}
        """By the label of an optimizer: which ones, and at how many looks."""

    def look(self, state: OptimizerState) -> str | None:
        """The fact that tells of them at a detail step, if there are any."""
        optimizer = state.ref()
        known = {} if optimizer is None else optimizer.state
        absent = {
            id(p): p
            for p in state.parameters
            if p.requires_grad and p.grad is None and not _has_history(known.get(p))
        }
        before, looks = self._so_far.get(state.label, (set(absent), 0))
        still = before & absent.keys()
        self._so_far[state.label] = still, looks + 1
        first = next((p for key, p in absent.items() if key in still), None)
        if first is None:
            return None
        name = self._names.name(first, 0, 0)
        return fact("missing-gradients", tensor=name, count=len(still), looks=looks + 1)


def _has_history(kept: Any) -> bool:
    """Whether what an optimizer keeps of a parameter says that it has been stepped. Some make it
    before the first step, with a count of 0."""
    if not isinstance(kept, dict) or not kept:
        return False
    count = kept.get("step", 1)
    at_hand = isinstance(count, (int, float)) or (isinstance(count, Tensor) and count.is_cpu)
    return not at_hand or float(count) > 0
