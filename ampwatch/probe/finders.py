"""Finds the scaler, the optimizers and the models of a script that never heard of us."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class ScalerFinder:
    """Calls ``found(scaler)`` for each scaler that is made.

    There is no public hook for it, so the constructor is wrapped on the class.
    """

    def __init__(self, found: Callable[[GradScaler], None]) -> None:
        self._found = found
        self._original: Any = None
        self._wrapper: Any = None

    def open(self) -> None:
        original = torch.amp.GradScaler.__init__

        @functools.wraps(original)
        def __init__(scaler: GradScaler, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            if self._wrapper is not None:
                self._found(scaler)

        self._original, self._wrapper = original, __init__
        setattr(GradScaler, "__init__", __init__)  # noqa: B010  (mypy refuses the assignment)

    def close(self) -> None:
        if GradScaler.__init__ is self._wrapper:
            setattr(GradScaler, "__init__", self._original)  # noqa: B010
        self._wrapper = None


class OptimizerFinder:
    """Calls ``before(optimizer, has_closure)`` and ``after`` around each step of any optimizer.

    Global hooks: nothing is left on an instance, so nothing of ours is pickled or copied with it,
    and a framework's inner optimizer is seen as well as the one it wraps.
    """

    def __init__(
        self,
        before: Callable[[Optimizer, bool], None],
        after: Callable[[Optimizer, bool], None],
    ) -> None:
        self._before = before
        self._after = after
        self._handles: list[Any] = []

    def open(self) -> None:
        def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self._before(optimizer, _has_closure(args, kwargs))

        def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self._after(optimizer, _has_closure(args, kwargs))

        self._handles = [
            register_optimizer_step_pre_hook(before),
            register_optimizer_step_post_hook(after),
        ]

    def close(self) -> None:
        while self._handles:
            self._handles.pop().remove()


def _has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    # Hooks get step's own arguments, with the optimizer itself in front.
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    return callable(closure)


class ModelFinder:
    """Remembers which modules are called until the parameters in question have names."""

    def __init__(self) -> None:
        self._called: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._handle: Any = None

    def open(self) -> None:
        if self._handle is not None:
            return

        def hook(module: nn.Module, args: Any) -> None:
            self._called.add(module)

        self._handle = register_module_forward_pre_hook(hook)

    def owners(self, parameters: list[Tensor]) -> list[nn.Module]:
        """The fewest of the called modules that hold all of these parameters that any holds."""
        missing = {id(parameter) for parameter in parameters}
        holdings = [
            (module, {id(parameter) for parameter in module.parameters()} & missing)
            for module in list(self._called)
        ]
        chosen: list[nn.Module] = []
        while missing and holdings:
            # Of two that hold as much, the one with fewer modules in it is the nearer wrapper.
            module, held = max(
                holdings, key=lambda entry: (len(entry[1] & missing), _outermost(entry[0]))
            )
            if not held & missing:
                break
            chosen.append(module)
            missing -= held
        return chosen

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._called.clear()


def _outermost(module: nn.Module) -> int:
    """A wrapper of a model holds the same parameters and more modules: names come from inside."""
    return -sum(1 for _ in module.modules())
