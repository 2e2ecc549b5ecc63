"""What a scaler and an optimizer bring along when they are met: a history, or none."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.probe import private
from ampwatch.probe.patch import Listeners, Patch

OLD_NAMES = ("torch.cuda.amp", "torch.cpu.amp")


def deprecated(kind: type) -> str | None:
    """The old name of a class of torch.amp, if it is one."""
    module = next((name for name in OLD_NAMES if kind.__module__.startswith(name)), None)
    return None if module is None else f"{module}.{kind.__name__}"


def steps_before(optimizer: Optimizer) -> int:
    """How many steps an optimizer has taken before its first one here, as its state tells."""
    most = 0
    for state in optimizer.state.values():
        if not isinstance(state, dict):
            continue
        step = state.get("step", 0)
        device = getattr(step, "device", None)
        if device is None or device.type == "cpu":
            most = max(most, int(step))
        if state.get("momentum_buffer") is not None:
            most = max(most, 1)
    return most


def untouched(scaler: GradScaler) -> bool:
    """Whether a scaler is as it was made: it has learned nothing, and nothing was loaded."""
    scale, tracker = private.scale_tensor(scaler), private.growth_tracker_tensor(scaler)
    if scale is None or tracker is None:
        return True
    return float(scale) == private.initial_scale(scaler) and int(tracker) == 0


class LoadWatch:
    """Remembers which optimizers were given a saved state: one without momentum keeps no count of
    steps by which its history could be told."""

    def __init__(self) -> None:
        self._loaded: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def open(self) -> None:
        _patch.add(self)

    def close(self) -> None:
        _patch.remove(self)
        self._loaded.clear()

    def loaded(self, optimizer: Optimizer) -> None:
        self._loaded.add(optimizer)

    def knows(self, optimizer: Optimizer) -> bool:
        """Whether a state was loaded into it."""
        return optimizer in self._loaded


def _wrap(original: Any, listeners: Listeners[LoadWatch]) -> Any:
    @functools.wraps(original)
    def load_state_dict(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        for watch in listeners.all:
            watch.loaded(self)
        return result

    return load_state_dict


def _write(function: Any) -> None:
    Optimizer.load_state_dict = function  # type: ignore[method-assign]


_patch: Patch[LoadWatch] = Patch(lambda: Optimizer.load_state_dict, _write, _wrap)
