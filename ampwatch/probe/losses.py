"""Which losses a step is made of: those that are back-propagated, without the scale.

A scaled loss is known by the number of the operation that made it. Keeping its node instead
would keep the graph alive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from ampwatch.probe.private import factors_kept, sequence_number

SEARCH_NODES = 256
"""A scaled loss is at most a few operations (a division, a sum) below what is back-propagated."""

HAND_NODES = 3
"""A loss scaled by hand is the last thing, or there is a division for accumulation after it."""
HAND_SCALE = 2.0**5
"""Smaller powers of two are weights of a loss as well."""

MOST_LOSSES = 10_000
"""After so many without a step that was seen, none is about to come: who explains a network by the
gradients of its inputs takes none."""
WALK_NODES = 2000
"""Where several networks train, so much of a graph is looked through to tell whose loss it is."""


class Losses:
    """The losses of the step that is being taken."""

    def __init__(self) -> None:
        self._scaled: dict[int, Tensor] = {}
        self._gone: list[Tensor] = []
        self._known: list[float] = []
        """The first of those as numbers, as far as they have been read."""
        self._recorded = False
        self._old = False

    def scaled(self, loss: Tensor, result: Tensor) -> None:
        """``result`` is ``loss`` times the scale."""
        if self._old:
            self._scaled.clear()
            self._old = False
        node = result.grad_fn
        if node is not None:
            self._scaled[sequence_number(node)] = _local(loss)

    def back(self, root: Tensor) -> bool:
        """``root`` is back-propagated; whether it was made from scaled losses."""
        if self._recorded or len(self._gone) >= MOST_LOSSES:
            self._gone.clear()
            self._known = []
            self._recorded = False
        found = self._scaled_in(root)
        if found:
            self._gone += found
        elif root.numel() == 1:
            self._gone.append(_local(root))
        return bool(found)

    def _scaled_in(self, root: Tensor) -> list[Tensor]:
        """The scaled losses in the graph of ``root``: itself, or a few operations before it."""
        if root.grad_fn is None or not self._scaled:
            return []
        loss = self._scaled.get(sequence_number(root.grad_fn))
        if loss is not None:
            return [loss]
        found: list[Tensor] = []
        nodes: list[Any] = [root.grad_fn]
        seen = set(nodes)
        for node in nodes:  # grows while it is gone through
            for child, _ in node.next_functions:
                if child is None or child in seen:
                    continue
                seen.add(child)
                loss = self._scaled.get(sequence_number(child))
                if loss is not None:
                    found.append(loss)
                elif len(nodes) < SEARCH_NODES:
                    nodes.append(child)
            if len(found) == len(self._scaled):
                break
        return found

    def latest(self) -> list[Tensor]:
        """What is being back-propagated, as far as it was seen for this step."""
        return self._gone

    def finite(self) -> bool:
        """Whether what is being back-propagated is so, where that can be told without waiting.

        Each loss is read once: the record takes the same number.
        """
        known = self._known
        fine = True
        for loss in self._gone[len(known) :]:
            if not loss.is_cpu:
                return True
            value = loss.item() if loss.numel() == 1 else _mean(loss).item()
            known.append(value)
            fine = fine and value - value == 0
        return fine

    def taken(self) -> list[Tensor] | list[float]:
        """The losses for the record of an optimizer's step; those of the next step are to come.

        Where no backward was seen, gradients came from ``torch.autograd.grad``.
        """
        self._recorded = True
        if self._known and len(self._known) == len(self._gone):
            return self._known
        losses = self._gone or list(self._scaled.values())
        return [loss if loss.numel() == 1 else _mean(loss) for loss in losses]

    def next_step(self) -> None:
        """What was scaled is forgotten at the next ``scale``: a loop with several losses may go
        back from one of them after the step of another."""
        self._old = True

    def clear(self) -> None:
        self._scaled.clear()
        self._gone.clear()
        self._known = []


def _local(loss: Tensor) -> Tensor:
    """Without its graph, and of a DTensor our own part: never a collective."""
    loss = loss.detach()
    local: Tensor = loss.to_local() if hasattr(loss, "to_local") else loss
    return local


def _mean(values: Tensor) -> Tensor:
    values = values.real if values.is_complex() else values
    return values.float().mean()


def scaled_by_hand(root: Tensor) -> float | None:
    """The power of two by which a loop has multiplied its loss itself, right before backward; None
    for other factors, which are weights of a loss."""
    node = root.grad_fn
    for _ in range(HAND_NODES):
        if node is None:
            return None
        name = str(node.name())
        if name.startswith("Mul"):
            for kept in factors_kept(node):
                factor = float(kept)
                if factor >= HAND_SCALE and math.frexp(factor)[0] == 0.5:
                    return factor
        elif not name.startswith(("Div", "Sum", "Add")):
            return None
        node = next((child for child, _ in node.next_functions if child is not None), None)
    return None


def tensors_in(outputs: Any) -> list[Tensor]:
    """The tensors in what a loop hands to ``scale``; an iterator is left unread."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, (list, tuple)):
        return [tensor for item in outputs for tensor in tensors_in(item)]
    return []


def multiplied(outputs: Any, gain: float) -> Any:
    """What is handed to ``scale``, times ``gain``."""
    if isinstance(outputs, Tensor):
        return outputs * gain
    if isinstance(outputs, (list, tuple)):
        return type(outputs)(multiplied(item, gain) for item in outputs)
    return outputs


def strange(root: Tensor, ours: set[int], others: set[int]) -> bool:
    """Whether going back from ``root`` comes to parameters of others, and to none of ours."""
    stack: list[Any] = [root.grad_fn]
    seen: set[Any] = {None}
    met = False
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        if len(seen) > WALK_NODES:
            return False  # too far to be sure: rather one loss too many than none
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            if id(variable) in ours:
                return False
            met = met or id(variable) in others
        stack.extend(child for child, _ in node.next_functions)
    return met


def iterated(outputs: Any) -> bool:
    """Whether ``scale`` gives its results one by one, as they are asked for."""
    return isinstance(outputs, Iterable) and not isinstance(outputs, (Tensor, list, tuple))
