"""Keeps our failures away from the loop that calls us."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Guest(Protocol):
    """Somebody whose methods are called from inside a stranger's code."""

    closed: bool
    reader: Any

    def fail(self, error: Exception) -> None: ...


def guarded(fallback: int | None = None) -> Callable[[F], F]:
    """Whatever a method raises is told to ``fail``, and its time is put on the guest's account.

    Args:
        fallback: position of the argument that is handed back when it fails, or is closed.
    """

    def decorate(method: F) -> F:
        clock = time.perf_counter

        @functools.wraps(method)
        def call(self: Guest, *args: Any) -> Any:
            begun = clock()
            try:
                if not self.closed:
                    return method(self, *args)
            except Exception as error:  # training goes on
                self.fail(error)
            finally:
                self.reader.spent += clock() - begun
            return None if fallback is None else args[fallback]

        return call  # type: ignore[return-value]

    return decorate
