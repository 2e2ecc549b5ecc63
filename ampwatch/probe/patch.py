"""One function of torch's with a wrapper around it, while anybody listens.

However many hooks are open there is a single wrapper, so they may close in any order and the
original is back in place after the last of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Listener = TypeVar("Listener")


class Listeners(Generic[Listener]):
    """Who is told by one wrapper. A tuple, so that one may leave while they are told."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all: tuple[Listener, ...] = ()


class Patch(Generic[Listener]):
    """A place where a wrapper goes.

    Args:
        read: what is in that place now.
        write: puts something there.
        wrap: makes the wrapper from the original and those who listen; without a listener it
            must do nothing but call the original.
    """

    def __init__(
        self,
        read: Callable[[], Any],
        write: Callable[[Any], None],
        wrap: Callable[[Any, Listeners[Listener]], Any],
    ) -> None:
        self._read = read
        self._write = write
        self._wrap = wrap
        self._original: Any = None
        self._wrapper: Any = None
        self._listeners: Listeners[Listener] = Listeners()

    def add(self, listener: Listener) -> None:
        """Tell ``listener`` too from now on."""
        current = self._read()
        if current is not self._wrapper and not self._listeners.all:
            # A wrapper of ours that lies under somebody else's keeps its empty list.
            self._listeners = Listeners()
            self._wrapper = self._wrap(current, self._listeners)
            self._original = current
            self._write(self._wrapper)
        self._listeners.all = (*self._listeners.all, listener)

    def remove(self, listener: Listener) -> None:
        """Tell it no longer; the last one puts the original back, unless somebody else has
        put a wrapper of their own on top: taking ours out would take theirs with it."""
        self._listeners.all = tuple(one for one in self._listeners.all if one is not listener)
        if not self._listeners.all and self._read() is self._wrapper:
            self._write(self._original)
            self._wrapper = self._original = None
