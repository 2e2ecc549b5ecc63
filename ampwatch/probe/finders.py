"""Finds the scaler, the optimizers and the models of a script that never heard of us."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ampwatch.probe.patch import Listeners, Patch


class ScalerFinder:
    """Calls ``found(scaler)`` for each scaler that is made, and ``disabled(device)`` first for one
    that was asked for where there is no such device.

    There is no public hook for it, so the constructor is wrapped on the class.
    """

    def __init__(
        self, found: Callable[[GradScaler], None], disabled: Callable[[str], None]
    ) -> None:
        self.found = found
        self.disabled = disabled

    def open(self) -> None:
        _scalers.add(self)

    def close(self) -> None:
        _scalers.remove(self)


def _wrap_constructor(original: Any, listeners: Listeners[ScalerFinder]) -> Any:
    @functools.wraps(original)
    def __init__(self: GradScaler, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        asked = args[5] if len(args) > 5 else kwargs.get("enabled", True)
        for finder in listeners.all:
            if asked and not self.is_enabled():
                finder.disabled(str(args[0] if args else kwargs.get("device", "cuda")))
            finder.found(self)

    return __init__


_scalers: Patch[ScalerFinder] = Patch(
    read=lambda: GradScaler.__init__,
    write=lambda function: setattr(GradScaler, "__init__", function),
    wrap=_wrap_constructor,
)


class OptimizerFinder:
    """Calls ``before(optimizer, args, kwargs)`` and ``after`` around each step of any optimizer;
    ``args`` and ``kwargs`` are those of ``step``, with the optimizer itself in front.

    Global hooks: nothing is left on an instance, so nothing of ours is pickled or copied with it,
    and a framework's inner optimizer is seen as well as the one it wraps.
    """

    def __init__(
        self,
        before: Callable[[Optimizer, Any, Any], None],
        after: Callable[[Optimizer, Any, Any], None],
    ) -> None:
        self._before = before
        self._after = after
        self._handles: list[Any] = []

    def open(self) -> None:
        self._handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]

    def close(self) -> None:
        while self._handles:
            self._handles.pop().remove()


class ModelFinder:
    """Remembers which modules are asked for their parameters, until those have names.

    That is how a model's parameters get into an optimizer. A forward hook would see models too,
    but a compiled one would be compiled a second time when the hook goes.
    """

    def __init__(self) -> None:
        self._asked: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def open(self) -> None:
        _modules.add(self)

    def close(self) -> None:
        _modules.remove(self)
        self._asked.clear()

    def asked(self, module: nn.Module) -> None:
        self._asked.add(module)

    def owners(self, parameters: list[Tensor]) -> list[nn.Module]:
        """The fewest modules that hold all of these parameters that any module holds."""
        missing = {id(parameter) for parameter in parameters}
        chosen = _cover(list(self._asked), missing)
        if missing:
            # Its optimizer was there before us. Only then: this looks at every object there is.
            chosen += _cover((o for o in gc.get_objects() if _is_module(o)), missing)
        return chosen


def _is_module(candidate: object) -> bool:
    return issubclass(type(candidate), nn.Module)  # isinstance would ask proxies for more


def _cover(modules: Iterable[nn.Module], missing: set[int]) -> list[nn.Module]:
    """Modules that hold what is missing, fewest first; takes what they hold out of ``missing``."""
    holdings = [
        (module, held)
        for module in modules
        if (held := {id(parameter) for parameter in _parameters(module)} & missing)
    ]
    # Of two that hold as much, the one with fewer modules in it is the nearer wrapper: DDP and
    # compiled models hold the same parameters, names come from inside.
    sizes = {id(module): -sum(1 for _ in module.modules()) for module, _ in holdings}
    chosen: list[nn.Module] = []
    while missing and holdings:
        module, held = max(
            holdings, key=lambda entry: (len(entry[1] & missing), sizes[id(entry[0])])
        )
        if not held & missing:
            break
        chosen.append(module)
        missing -= held
    return chosen


def _parameters(module: nn.Module) -> list[Tensor]:
    try:
        return list(module.parameters())
    except Exception:  # somebody's half-made module
        return []


def _wrap_named_parameters(original: Any, listeners: Listeners[ModelFinder]) -> Any:
    @functools.wraps(original)
    def named_parameters(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for finder in listeners.all:
            finder.asked(self)
        return original(self, *args, **kwargs)

    return named_parameters


_modules: Patch[ModelFinder] = Patch(
    read=lambda: nn.Module.named_parameters,
    write=lambda function: setattr(nn.Module, "named_parameters", function),
    wrap=_wrap_named_parameters,
)
