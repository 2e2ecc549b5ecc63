"""Which tensors are back-propagated.

``torch.autograd.backward`` is wrapped in its module while anything is watched; ``Tensor.backward``
goes through it, so both are seen, whatever the loop calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ampwatch.probe.patch import Listeners, Patch

Roots = Sequence[Any]
"""What a backward pass starts from: tensors, or edges of a graph."""


class BackwardWatch:
    """Calls ``before(roots)`` ahead of each backward pass of the loop's own.

    ``before`` returns what to go back from, the same or others in their place; ``after`` is told
    that the pass is over, well or not, where ``follows`` says so.
    """

    def __init__(
        self, before: Callable[[Roots], Roots], after: Callable[[], None] = lambda: None
    ) -> None:
        self.before = before
        self.after = after
        self.follows = False

    def open(self) -> None:
        _patch.add(self)

    def close(self) -> None:
        _patch.remove(self)


def _wrap(original: Any, listeners: Listeners[BackwardWatch]) -> Any:
    running = False

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal running
        if running or not listeners.all:
            # Re-entrant checkpointing goes back through a part of the graph from inside.
            return original(tensors, *args, **kwargs)
        if isinstance(tensors, Tensor):
            roots: Roots = (tensors,)
            for watch in listeners.all:
                roots = watch.before(roots)
            tensors = roots[0]
        elif isinstance(tensors, (list, tuple)):
            roots = tensors
            for watch in listeners.all:
                roots = watch.before(roots)
            tensors = roots
        running = True
        try:
            return original(tensors, *args, **kwargs)
        finally:
            running = False
            for watch in listeners.all:
                if watch.follows:
                    watch.follows = False
                    watch.after()

    return backward


def _write(function: Any) -> None:
    torch.autograd.backward = function


_patch: Patch[BackwardWatch] = Patch(lambda: torch.autograd.backward, _write, _wrap)
