"""The batch as the script holds it, looked up in the variables of the loop that called backward.

Autocast's copy of a batch in float16 says inf, whether the batch held inf or only a number beyond
65504. The batch itself is still in a variable of the loop. Only done at a loss that is not finite.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from inspect import CO_OPTIMIZED
from typing import Any, NamedTuple

from torch import Tensor

from ampwatch.probe.values import Values

MOST_FRAMES = 24
MOST_VARIABLES = 200
DEPTH = 2
"""Batches come in lists, tuples and dictionaries."""


class HandedIn(NamedTuple):
    """A tensor of the script's."""

    name: str
    finite: bool
    largest: float


def handed_in(value: Values) -> HandedIn | None:
    """The variable that holds the batch of which ``value`` is a copy, by its size."""
    best: HandedIn | None = None
    for name, values in holders(value.size) if value.holders is None else value.holders:
        if not values.finite:
            return HandedIn(name, False, float("inf"))
        if best is None:
            best = HandedIn(name, True, values.largest)
    return best


def holders(size: int) -> Iterator[tuple[str, Values]]:
    """Variables of the script that hold a tensor of so many values, those of the loop first."""
    for name, tensor in held():
        if tensor.numel() == size:
            yield name, Values(tensor)


def held() -> Iterator[tuple[str, Tensor]]:
    """Variables of the script that hold data, those of the loop first."""
    frame: Any = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if not _ours(frame):
            snapshot = frame.f_locals
            variables = dict(snapshot)
            if frame.f_code.co_flags & CO_OPTIMIZED and sys.version_info < (3, 13):
                snapshot.clear()  # a snapshot, which would keep the loop's tensors alive
            for name, tensor in _tensors(variables):
                if _data(tensor):
                    yield name, tensor
        frame = frame.f_back


def _ours(frame: Any) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module.split(".")[0] in ("ampwatch", "torch")


def _data(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not tensor.requires_grad and tensor.numel() > 0


def _tensors(variables: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    for name, each in list(variables.items())[:MOST_VARIABLES]:
        if type(each) is Tensor:
            yield str(name), each
        elif depth < DEPTH and isinstance(each, dict):
            yield from _tensors({f"{name}[{key!r}]": x for key, x in each.items()}, depth + 1)
        elif depth < DEPTH and isinstance(each, (list, tuple)) and len(each) <= MOST_VARIABLES:
            yield from _tensors({f"{name}[{i}]": x for i, x in enumerate(each)}, depth + 1)
