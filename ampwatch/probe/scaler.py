"""The calls of a GradScaler, seen through a subclass put in place of its class.

A method replaced on the instance would break pickling and make a deep copy drive the original;
with the class swapped, pickles and copies are plain scalers again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.probe import private
from ampwatch.record import ScalerInfo


class ScalerListener(Protocol):
    """What is told of a scaler's calls. None of it may raise anything but a request to stop."""

    def before_scale(self, scaler: GradScaler, outputs: Any) -> Any: ...
    def after_scale(self, scaler: GradScaler, scaled: Any) -> None: ...
    def before_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None: ...
    def before_step(self, scaler: GradScaler, optimizer: Optimizer) -> None: ...
    def after_step(self, scaler: GradScaler, optimizer: Optimizer, failed: bool) -> None: ...
    def before_update(self, scaler: GradScaler, new_scale: Any) -> Any: ...
    def after_update(self, scaler: GradScaler) -> None: ...


_listeners: dict[int, tuple[weakref.ref[GradScaler], ScalerListener]] = {}
_classes: dict[type[GradScaler], type[GradScaler]] = {}


def listen(scaler: GradScaler, listener: ScalerListener) -> None:
    """Tell ``listener`` of every call of ``scaler`` from now on; one listener a scaler."""
    base = type(scaler)
    if base not in _classes.values():
        if base not in _classes:
            _classes[base] = _watched(base)
        scaler.__class__ = _classes[base]
    key = id(scaler)
    # Weakly: a script that makes a scaler an epoch must be able to let the old ones go.
    _listeners[key] = (weakref.ref(scaler, lambda _: _forget(key)), listener)


def _forget(key: int) -> None:
    _listeners.pop(key, None)
    _switched_off.discard(key)


def unlisten(scaler: GradScaler) -> None:
    """Leave the scaler as it was found."""
    if _listeners.pop(id(scaler), None) is not None:
        if id(scaler) in _switched_off:
            switch(scaler, on=True)
        scaler.__class__ = type(scaler).__mro__[1]


def _plain_reduce(scaler: GradScaler, base: type[GradScaler], protocol: Any) -> Any:
    """Pickle and copy as the class the script made."""
    watched = type(scaler)
    scaler.__class__ = base
    try:
        return scaler.__reduce_ex__(protocol)
    finally:
        scaler.__class__ = watched


def _watched(base: type[GradScaler]) -> type[GradScaler]:
    """A subclass of ``base`` that reports its calls."""

    def scale(self: GradScaler, outputs: Any) -> Any:
        entry = _listeners.get(id(self))
        if entry is None:
            return base.scale(self, outputs)
        listener = entry[1]
        scaled = base.scale(self, listener.before_scale(self, outputs))
        listener.after_scale(self, scaled)
        return scaled

    def unscale_(self: GradScaler, optimizer: Optimizer) -> None:
        entry = _listeners.get(id(self))
        if entry is not None:
            entry[1].before_unscale(self, optimizer)
        base.unscale_(self, optimizer)

    def step(self: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        entry = _listeners.get(id(self))
        if entry is None:
            return base.step(self, optimizer, *args, **kwargs)
        listener = entry[1]
        listener.before_step(self, optimizer)
        failed = True
        try:
            result = base.step(self, optimizer, *args, **kwargs)
            failed = False
        finally:
            listener.after_step(self, optimizer, failed)
        return result

    def update(self: GradScaler, new_scale: Any = None) -> None:
        entry = _listeners.get(id(self))
        if entry is None:
            base.update(self, new_scale)
            return
        listener = entry[1]
        base.update(self, listener.before_update(self, new_scale))
        listener.after_update(self)

    def state_dict(self: GradScaler) -> dict[str, Any]:
        # A checkpoint written while a key has switched the scaler off must still hold its state.
        state: dict[str, Any] = while_on(self, lambda: base.state_dict(self))
        return state

    def load_state_dict(self: GradScaler, state: dict[str, Any]) -> None:
        while_on(self, lambda: base.load_state_dict(self, state))

    def __reduce_ex__(self: GradScaler, protocol: Any) -> Any:
        return _plain_reduce(self, base, protocol)

    body = {
        function.__name__: function
        for function in (
            scale,
            unscale_,
            step,
            update,
            state_dict,
            load_state_dict,
            __reduce_ex__,
        )
    }
    body["__module__"] = base.__module__  # type: ignore[assignment]
    body["__qualname__"] = base.__qualname__  # type: ignore[assignment]
    body["__doc__"] = base.__doc__  # type: ignore[assignment]
    return type(base.__name__, (base,), body)


_switched_off: set[int] = set()


def switch(scaler: GradScaler, on: bool) -> bool:
    """Turn scaling on or off by key; whether it worked."""
    if on:
        _switched_off.discard(id(scaler))
        return private.set_enabled(scaler, True)
    if scaler.is_enabled():
        _switched_off.add(id(scaler))
    return private.set_enabled(scaler, False)


def while_on(scaler: GradScaler, call: Callable[[], Any]) -> Any:
    """Call with the scaler as the script made it, whatever a key has done to it."""
    if id(scaler) not in _switched_off:
        return call()
    private.set_enabled(scaler, True)
    try:
        return call()
    finally:
        private.set_enabled(scaler, False)


def describe(scaler: GradScaler, mode: str) -> ScalerInfo:
    """Its settings, without asking the device."""
    initial = private.initial_scale(scaler)
    if initial is None:
        return ScalerInfo(mode)
    return ScalerInfo(
        mode,
        initial,
        float(scaler.get_growth_factor()),
        float(scaler.get_backoff_factor()),
        int(scaler.get_growth_interval()),
    )


def scale_in_force(scaler: GradScaler) -> tuple[Tensor | None, Tensor | None]:
    """(scale, growth tracker) as tensors on the device; None while it is off or unused."""
    if not scaler.is_enabled():
        return None, None
    return private.scale_tensor(scaler), private.growth_tracker_tensor(scaler)


def tensors_in(outputs: Any) -> list[Tensor]:
    """The tensors in what a loop hands to ``scale``; an iterator is left unread."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, (list, tuple)):
        return [tensor for item in outputs for tensor in tensors_in(item)]
    return []
