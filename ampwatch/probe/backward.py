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

Roots = Sequence[Tensor]


class BackwardWatch:
    """Calls ``before(roots)`` ahead of each backward pass of the loop's own.

    ``before`` returns the tensors to go back from, the same or others in their place.
    """

    def __init__(self, before: Callable[[Roots], Roots]) -> None:
        self._before = before
        self._running = False
        self._original: Any = None
        self._wrapper: Any = None

    def open(self) -> None:
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self._running or self._wrapper is None:
                # Re-entrant checkpointing goes back through a part of the graph from inside.
                return original(tensors, *args, **kwargs)
            single = isinstance(tensors, Tensor)
            roots = self._before((tensors,) if single else tuple(tensors))
            self._running = True
            try:
                return original(roots[0] if single else roots, *args, **kwargs)
            finally:
                self._running = False

        self._original, self._wrapper = original, backward
        torch.autograd.backward = backward

    def close(self) -> None:
        """Put the original back, unless somebody else has wrapped it since."""
        if torch.autograd.backward is self._wrapper:
            torch.autograd.backward = self._original
        self._wrapper = None
