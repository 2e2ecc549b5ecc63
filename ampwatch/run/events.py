"""What happened in a run, in plain words, as a list that stays short."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

MOST_EVENTS = 1000
LOOK_BACK = 16
"""How far from the end an event that grows is looked for: it is among the latest."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, or several of a kind in a row."""

    step: int
    kind: str
    """"skip", "growth", "scale-set", "knob", "dtype", "scaler", "nonfinite-loss",
    "nonfinite-gradients", "notice", "lost", "finished", "failed", "stopped"."""
    severity: str
    """"info", "warning" or "error"."""
    text: str
    tensor: str | None = None
    count: int = 1
    """How many steps it stands for."""
    last_step: int | None = None
    """The last of them, when they are more than one."""


class EventLog:
    """The latest events, oldest first; an event that goes on is replaced, not repeated."""

    __slots__ = ("_fresh", "_items", "dropped", "version")

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self._items: deque[Event] = deque(maxlen=most)
        self._fresh: deque[Event] = deque(maxlen=most)
        self.version = 0
        """Grows whenever the list changes."""
        self.dropped = 0
        """How many of the oldest were let go."""

    @property
    def items(self) -> tuple[Event, ...]:
        return tuple(self._items)

    @property
    def latest(self) -> Event | None:
        return self._items[-1] if self._items else None

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._items))

    def add(self, event: Event, instead_of: Event | None = None) -> None:
        """Append an event, or put it in the place of the one it continues."""
        self.version += 1
        if instead_of is not None and self._replace(event, instead_of):
            return
        if len(self._items) == self._items.maxlen:
            self.dropped += 1
        self._items.append(event)
        self._fresh.append(event)

    def _replace(self, event: Event, old: Event) -> bool:
        items = self._items
        for back in range(1, min(len(items), LOOK_BACK) + 1):
            if items[-back] is old:
                items[-back] = event
                break
        else:
            return False
        for back in range(1, min(len(self._fresh), LOOK_BACK) + 1):
            if self._fresh[-back] is old:
                self._fresh[-back] = event
                return True
        self._fresh.append(event)
        return True

    def drain(self) -> list[Event]:
        """The events that are new or have grown since the last call."""
        fresh = list(self._fresh)
        self._fresh.clear()
        return fresh
