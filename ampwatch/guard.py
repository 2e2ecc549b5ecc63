"""Keeps our failures away from the loop that calls us, and keeps count of the time we take."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Guard:
    """Shared by everything that one watched loop calls.

    Args:
        failed: is told what has gone wrong with us; it puts an end to watching.
    """

    __slots__ = ("closed", "failed", "spent")

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self.closed = False
        self.spent = 0.0
        """Seconds of our own since somebody last took them off."""
        self.failed = failed


class Guarded(Protocol):
    """Somebody whose methods are called from inside a stranger's code."""

    guard: Guard


def guarded(fallback: int | None = None) -> Callable[[F], F]:
    """Whatever the method raises is told to the guard, and its time is put on our account.

    Args:
        fallback: position of the argument that is handed back when it fails, or all is closed.
    """

    def decorate(method: F) -> F:
        clock = time.perf_counter

        @functools.wraps(method)
        def call(self: Guarded, *args: Any) -> Any:
            guard = self.guard
            if guard.closed:
                return None if fallback is None else args[fallback]
            begun = clock()
            try:
                return method(self, *args)
            except Exception as error:  # training goes on
                guard.failed(error)
                return None if fallback is None else args[fallback]
            finally:
                guard.spent += clock() - begun

        return call  # type: ignore[return-value]

    return decorate
