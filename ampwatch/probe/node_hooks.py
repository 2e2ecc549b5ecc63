"""Hooks on the nodes of one graph, for one backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

Gradients = Sequence[Tensor | None]


class NodeHooks:
    """Puts hooks on nodes and takes all of them off again.

    A hook hands nothing back, so what flows stays as it is, and what goes wrong in it stops the
    looking and not the training.
    """

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self.failed = False
        """A hook has failed since they were put on."""

    @property
    def armed(self) -> bool:
        return bool(self._handles)

    def before(self, node: Any, look: Callable[[Gradients], None]) -> None:
        """``look(incoming)`` before the node computes."""
        self._handles.append(node.register_prehook(functools.partial(self._call, look)))

    def after(self, node: Any, look: Callable[[Gradients, Gradients], None]) -> None:
        """``look(outgoing, incoming)`` when it has computed."""
        self._handles.append(node.register_hook(functools.partial(self._call, look)))

    def _call(self, look: Callable[..., None], *gradients: Gradients) -> None:
        if self.failed:
            return
        try:
            look(*gradients)
        except Exception:  # not every device and kind of tensor can be looked at
            self.failed = True

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()
