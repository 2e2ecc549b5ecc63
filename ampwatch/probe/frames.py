"""The batch as the script holds it, looked up in the variables of the loop that called backward.

Autocast's copy of a batch in float16 says inf, whether the batch held inf or only a number beyond
65504. The batch itself is still in a variable of the loop. Only done at a loss that is not finite,
and at the first steps where numbers come late.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from inspect import CO_OPTIMIZED
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ampwatch.formats import FLOAT16
from ampwatch.probe.values import Values

MOST_FRAMES = 24
MOST_VARIABLES = 200
MOST_CONTAINERS = 500
"""So many lists, dictionaries and objects of a frame are looked into."""
MOST_TENSORS = 1000
"""So many tensors of a frame are told of: a script may hold its whole data set."""
MOST_HOLDERS = 8
"""So many variables of one size are asked; the loop's own come first."""
DEPTH = 2
"""Batches come in lists, tuples, dictionaries, and objects that hold these."""
SKIPPED = (nn.Module, Optimizer, type)
"""What they hold is no batch."""


class HandedIn(NamedTuple):
    """A tensor of the script's."""

    name: str | None
    """None where another one was made of it on the way."""
    finite: bool
    largest: float | None


class Held(NamedTuple):
    """A variable of the script that holds data."""

    code: CodeType
    """Of which function; the same name means something else in another."""
    name: str
    tensor: Tensor


def handed_in(value: Values) -> HandedIn | None:
    """The variable that holds the batch of which ``value``, which is inf or NaN, is a copy: one of
    its size that is so too, or else that has numbers beyond float16, where the copy is in that."""
    held_by = holders(value, held()) if value.holders is None else value.holders
    lowered: HandedIn | None = None
    for name, values in held_by:
        if not values.finite:
            return HandedIn(name, False, None)
        if values.largest > FLOAT16.largest and (lowered is None or lowered.name is None):
            lowered = HandedIn(name, True, values.largest)
        elif lowered is None:
            lowered = HandedIn(None, True, None)
    return lowered if value.dtype is torch.float16 and not value.nan else None


def holders(value: Values, variables: Iterable[Held]) -> list[tuple[str, Values]]:
    """Of these variables those that hold a tensor of so many values; only the one that holds this
    very tensor, if there is one."""
    found = [each for each in variables if each.tensor.numel() == value.size]
    where = address(value.tensor)
    same = [each for each in found if where is not None and address(each.tensor) == where]
    return [(each.name, Values(each.tensor)) for each in same[:1] or found[:MOST_HOLDERS]]


def address(tensor: Tensor | None) -> int | None:
    """Where the values of a plain tensor begin; ``None`` for another."""
    if tensor is None or tensor.layout is not torch.strided or type(tensor) is not Tensor:
        return None
    try:
        return tensor.data_ptr() or None
    except RuntimeError:  # inside vmap, under a fake mode
        return None


def held() -> Iterator[Held]:
    """Variables of the script that hold data, those of the loop first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if not _ours(frame):
            yield from _held(frame)
        frame = frame.f_back


def _held(frame: FrameType) -> list[Held]:
    snapshot = frame.f_locals
    variables = list(islice(snapshot.items(), MOST_VARIABLES))
    if frame.f_code.co_flags & CO_OPTIMIZED and sys.version_info < (3, 13):
        # A snapshot, which would keep the loop's tensors alive; but a script that has called
        # locals() has the same one.
        if sys.getrefcount(snapshot) <= _REFERENCES:
            snapshot.clear()
    found = (
        Held(frame.f_code, name, tensor) for name, tensor in _tensors(variables) if _data(tensor)
    )
    return list(islice(found, MOST_TENSORS))


_REFERENCES = 3
"""Of a snapshot that nobody else has: the frame's, our variable, and the argument."""


def _ours(frame: FrameType) -> bool:
    return _inner(frame.f_globals.get("__name__", ""))


def _inner(module: Any) -> bool:
    return str(module).split(".")[0] in ("ampwatch", "torch")


def _data(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not tensor.requires_grad and tensor.numel() > 0


def _tensors(variables: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Tensor]]:
    """The variables themselves first, then what they contain."""
    waiting: deque[tuple[str, Any, int]] = deque((str(name), each, 0) for name, each in variables)
    containers = 0
    while waiting:
        name, each, depth = waiting.popleft()
        if type(each) is Tensor:
            yield name, each
        elif depth < DEPTH and containers < MOST_CONTAINERS:
            inside = [(inner, x, depth + 1) for inner, x in _inside(name, each)]
            containers += bool(inside)
            waiting += inside


def _inside(name: str, each: Any) -> Iterable[tuple[str, Any]]:
    """What a container holds; no code of the script's runs."""
    kind = type(each)
    if issubclass(kind, dict):
        entries = list(islice(dict.items(each), MOST_VARIABLES))  # threads may change it
        return [(f"{name}[{key!r}]", x) for key, x in entries if type(key) in (str, int)]
    if issubclass(kind, (list, tuple)):
        items = list.copy(each) if issubclass(kind, list) else list(tuple.__iter__(each))
        few = len(items) <= MOST_VARIABLES
        return [(f"{name}[{i}]", x) for i, x in enumerate(items)] if few else ()
    if issubclass(kind, SKIPPED) or not kind.__flags__ & _OF_PYTHON or _inner(kind.__module__):
        return ()
    try:
        attributes = object.__getattribute__(each, "__dict__")
    except AttributeError:
        return ()
    entries = list(islice(attributes.items(), MOST_VARIABLES)) if type(attributes) is dict else []
    return [(f"{name}.{key}", x) for key, x in entries if type(key) is str]


_OF_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: classes that Python code has made."""
