"""Which dtype autocast lowers to, and the key that changes it.

``autocast.__enter__`` is wrapped on the class while anything is watched: that reaches contexts
made once, made in a loop, and decorators alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.amp.autocast_mode import autocast

from ampwatch.probe import private
from ampwatch.probe.computed import computed_in
from ampwatch.probe.dtypes import dtype_name
from ampwatch.probe.patch import Listeners, Patch
from ampwatch.probe.resume import deprecated

NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


class AutocastWatch:
    """Sees every autocast region that is entered.

    Args:
        failed: is told when torch keeps the context's fields elsewhere.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self.seen = False
        """Whether the loop has used autocast at all."""
        self.old_name: str | None = None
        """A deprecated class whose region was entered; who tells of it puts it back to None."""
        self._told_old = False
        self.override: str | None = None
        """The dtype regions are made to lower to; None leaves them as they are."""
        self._dtype: str | None = None
        self.plain: str | None = None
        """What the loop computes in outside of autocast; None until it was looked at."""
        self._failed = failed

    def open(self) -> None:
        _patch.add(self)

    def close(self) -> None:
        self.override = None
        _patch.remove(self)

    def dtype(self) -> str:
        """What this step computes in: what the first region it entered lowers to; without one,
        what its own numbers are."""
        return self._dtype or self.plain or "float32"

    def look(self, roots: list[Tensor]) -> None:
        """A backward pass begins, and no region was entered yet in this loop."""
        dtype = None if self.seen else computed_in(roots)
        self.plain = "float32" if dtype is None else dtype_name(dtype)

    def next_step(self) -> None:
        self._dtype = None

    def entering(self, context: autocast) -> str | None:
        """A region is entered; the dtype to enter it with in place of its own, if any."""
        if type(context) is not autocast and not self._told_old:
            self.old_name = deprecated(type(context))
            self._told_old = self.old_name is not None
        try:
            dtype, enabled, _ = private.autocast_fields(context)
        except Exception as error:
            self._failed(error)
            return None
        if not enabled:
            return None  # a region the script keeps in float32
        self.seen = True
        if self._dtype is None:
            own = None if dtype is None else dtype_name(dtype)
            self._dtype = self.override or own
        return self.override


def _wrap(original: Any, listeners: Listeners[AutocastWatch]) -> Any:
    # With functools.wraps TorchScript finds the source of the original: scripted models may
    # have autocast regions too, and those are compiled from it.
    @functools.wraps(original)
    def __enter__(self: autocast) -> Any:
        override = None
        for watch in listeners.all:
            override = watch.entering(self) or override
        if override is None:
            return original(self)
        with private.autocast_as(self, None if override == "float32" else DTYPES[override]):
            return original(self)

    return __enter__


_patch: Patch[AutocastWatch] = Patch(
    read=lambda: autocast.__enter__,
    write=lambda function: setattr(autocast, "__enter__", function),
    wrap=_wrap,
)
