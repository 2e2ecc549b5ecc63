"""Whether anybody packs what graphs keep: activation checkpointing and offloading do.

To unpack such tensors runs a part of the forward pass again, or copies it back; so we do not look
at what graphs keep once this was seen.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.autograd.graph import saved_tensors_hooks

from ampwatch.probe.patch import Listeners, Patch


class PackingWatch:
    """Notes that saved tensors are packed by somebody."""

    def __init__(self) -> None:
        self.seen = False

    def open(self) -> None:
        _patch.add(self)

    def close(self) -> None:
        _patch.remove(self)


def _wrap(original: Any, listeners: Listeners[PackingWatch]) -> Any:
    @functools.wraps(original)
    def __enter__(self: Any) -> Any:
        for watch in listeners.all:
            watch.seen = True
        return original(self)

    return __enter__


_patch: Patch[PackingWatch] = Patch(
    read=lambda: saved_tensors_hooks.__enter__,
    write=lambda function: setattr(saved_tensors_hooks, "__enter__", function),
    wrap=_wrap,
)
