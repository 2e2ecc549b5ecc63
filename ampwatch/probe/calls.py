"""Sees what the script's code calls of torch's, in the thread that asked for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from ampwatch.probe import private

Told = Callable[[Any, Any, dict[str, Any], Any], None]
"""Takes the function, its arguments, its named arguments and its result; must not raise."""


class CallWatch(TorchFunctionMode):
    """Calls what is called, and tells of it afterwards.

    Args:
        told: what to tell.
    """

    def __init__(self, told: Told) -> None:
        self._told: Told | None = told

    def open(self) -> None:
        private.insert_mode(self)

    def close(self) -> None:
        """Off the stack. While a call goes through this (``backward`` is such a call) it is not
        on the stack, but comes back to it; from now on it does nothing, and :func:`sweep` takes
        it away."""
        self._told = None
        if not private.remove_mode(self):
            _left.append(self)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        told = self._told
        if told is not None:
            told(func, args, kwargs, result)
        return result


_left: list[CallWatch] = []


def sweep() -> None:
    """Take what could not be taken before off the stack, once it has come back to it."""
    _left[:] = [watch for watch in _left if not private.remove_mode(watch)]
