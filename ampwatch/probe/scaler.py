"""The calls of a GradScaler, seen through a subclass put in place of its class.

A method replaced on the instance would break pickling and make a deep copy drive the original;
with the class swapped, pickles and copies are plain scalers again.
"""

from __future__ import annotations

import copyreg
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.probe import private
from ampwatch.record import ScalerInfo


class ScalerListener(Protocol):
    """What is told of a scaler's calls. None of it may raise anything but a request to stop."""

    def before_scale(self, scaler: GradScaler, outputs: Any) -> Any: ...
    def after_scale(self, scaler: GradScaler, outputs: Any, scaled: Any) -> Any: ...
    def before_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None: ...
    def failed_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None: ...
    def before_step(self, scaler: GradScaler, optimizer: Optimizer) -> None: ...
    def after_step(self, scaler: GradScaler, optimizer: Optimizer, failed: bool) -> None: ...
    def before_update(self, scaler: GradScaler, new_scale: Any) -> Any: ...
    def after_update(self, scaler: GradScaler) -> None: ...


Entry = tuple["weakref.ref[GradScaler] | None", tuple[ScalerListener, ...]]
NOBODY: Entry = (None, ())
_listeners: dict[int, Entry] = {}
_classes: dict[type[GradScaler], type[GradScaler]] = {}
_as_made: dict[int, dict[str, Any]] = {}
"""What the script made of the scalers that a key has switched on or off: their attributes."""


def listen(scaler: GradScaler, listener: ScalerListener) -> None:
    """Tell ``listener`` of every call of ``scaler`` from now on."""
    base = type(scaler)
    if base not in _classes.values():
        if base not in _classes:
            _classes[base] = _watched(base)
        scaler.__class__ = _classes[base]
    key = id(scaler)
    _, told = _listeners.get(key, (None, ()))
    if listener not in told:
        # Weakly: a script that makes a scaler an epoch must be able to let the old ones go.
        _listeners[key] = (weakref.ref(scaler, lambda _: _forget(key)), (*told, listener))


def _forget(key: int) -> None:
    _listeners.pop(key, None)
    _as_made.pop(key, None)


def unlisten(scaler: GradScaler, listener: ScalerListener) -> None:
    """Tell it no longer; after the last one the scaler is as it was found."""
    key = id(scaler)
    if key not in _listeners:
        return
    ref, told = _listeners[key]
    left = tuple(one for one in told if one is not listener)
    if left:
        _listeners[key] = (ref, left)
        return
    del _listeners[key]
    made = _as_made.pop(key, None)
    if made is not None:
        _put_back(scaler, made)
    if type(scaler) in _classes.values():
        scaler.__class__ = type(scaler).__mro__[1]


def _plain_reduce(scaler: GradScaler, base: type[GradScaler], protocol: Any) -> Any:
    """Pickle and copy as the class the script made."""
    watched = type(scaler)
    scaler.__class__ = base
    try:
        reduced = while_as_made(scaler, lambda: scaler.__reduce_ex__(protocol))
    finally:
        scaler.__class__ = watched
    if isinstance(reduced, tuple) and reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
        # The pickler insists that __newobj__ makes an object of the class it looks at.
        cls, *arguments = reduced[1]
        return (cls.__new__, (cls, *arguments), *reduced[2:])
    return reduced


def _watched(base: type[GradScaler]) -> type[GradScaler]:
    """A subclass of ``base`` that reports its calls."""

    def scale(self: GradScaler, outputs: Any) -> Any:
        _, listeners = _listeners.get(id(self), NOBODY)
        given = outputs
        for listener in listeners:
            given = listener.before_scale(self, given)
        scaled = base.scale(self, given)
        for listener in listeners:
            scaled = listener.after_scale(self, outputs, scaled)
        return scaled

    def unscale_(self: GradScaler, optimizer: Optimizer) -> None:
        _, listeners = _listeners.get(id(self), NOBODY)
        for listener in listeners:
            listener.before_unscale(self, optimizer)
        try:
            base.unscale_(self, optimizer)
        except BaseException:
            for listener in listeners:
                listener.failed_unscale(self, optimizer)
            raise

    def step(self: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        _, listeners = _listeners.get(id(self), NOBODY)
        for listener in listeners:
            listener.before_step(self, optimizer)
        failed = True
        try:
            result = base.step(self, optimizer, *args, **kwargs)
            failed = False
        finally:
            for listener in listeners:
                listener.after_step(self, optimizer, failed)
        return result

    def update(self: GradScaler, new_scale: Any = None) -> None:
        _, listeners = _listeners.get(id(self), NOBODY)
        for listener in listeners:
            new_scale = listener.before_update(self, new_scale)
        base.update(self, new_scale)
        for listener in listeners:
            listener.after_update(self)

    def state_dict(self: GradScaler) -> dict[str, Any]:
        # A checkpoint written while a key has switched the scaler off must still hold its state.
        state: dict[str, Any] = while_as_made(self, lambda: base.state_dict(self))
        return state

    def load_state_dict(self: GradScaler, state: dict[str, Any]) -> None:
        while_as_made(self, lambda: base.load_state_dict(self, state))

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


def switch(scaler: GradScaler, on: bool) -> bool:
    """Turn scaling on or off by key; whether it worked."""
    if on != scaler.is_enabled():
        _as_made.setdefault(id(scaler), dict(vars(scaler)))
    return private.set_enabled(scaler, on)


def _put_back(scaler: GradScaler, made: dict[str, Any]) -> None:
    """Enabled or not as it was made; one made disabled has lost nothing but our settings."""
    for name in vars(scaler).keys() - made.keys():
        delattr(scaler, name)
    private.set_enabled(scaler, made["_enabled"])


def while_as_made(scaler: GradScaler, call: Callable[[], Any]) -> Any:
    """Call with the scaler on or off as the script made it, whatever a key has done to it."""
    made, now = _as_made.get(id(scaler)), scaler.is_enabled()
    if made is None or made["_enabled"] == now:
        return call()
    private.set_enabled(scaler, made["_enabled"])
    try:
        return call()
    finally:
        private.set_enabled(scaler, now)


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


def scale_in_force(scaler: GradScaler) -> tuple[Tensor, ...]:
    """(scale, growth tracker) as tensors on the device; nothing while it is off or unused."""
    scale, tracker = private.scale_tensor(scaler), private.growth_tracker_tensor(scaler)
    if scale is None or not scaler.is_enabled():
        return ()
    return (scale,) if tracker is None else (scale, tracker)
