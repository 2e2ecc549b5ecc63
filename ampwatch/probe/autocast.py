"""Which dtype autocast lowers to, and the key that changes it.

``autocast.__enter__`` is wrapped on the class while anything is watched: that reaches contexts
made once, made in a loop, and decorators alike.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.autocast_mode import autocast

from ampwatch.probe.private import autocast_as, autocast_fields

NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


class AutocastWatch:
    """Sees every autocast region that is entered."""

    def __init__(self) -> None:
        self.seen = False
        """Whether the loop has used autocast at all."""
        self.override: str | None = None
        """The dtype regions are made to lower to; None leaves them as they are."""
        self._dtype: str | None = None
        self._original: Any = None
        self._wrapper: Any = None

    def open(self) -> None:
        original = autocast.__enter__
        watch = self

        def __enter__(context: autocast) -> Any:
            return watch._enter(context, original)

        self._original, self._wrapper = original, __enter__
        setattr(autocast, "__enter__", __enter__)  # noqa: B010  (mypy refuses the assignment)

    def close(self) -> None:
        """Put the original back, unless somebody else has wrapped it since."""
        self.override = None
        if autocast.__enter__ is self._wrapper:
            setattr(autocast, "__enter__", self._original)  # noqa: B010
        self._wrapper = None

    def dtype(self) -> str:
        """What the last step computed in; the next step starts anew."""
        seen, self._dtype = self._dtype, None
        return seen or "float32"

    def _enter(self, context: autocast, original: Any) -> Any:
        dtype, enabled, _ = autocast_fields(context)
        if not enabled or self._wrapper is None:
            return original(context)  # a region the script keeps in float32
        self.seen = True
        override = self.override
        if override is None:
            if self._dtype is None and dtype is not None:
                self._dtype = NAMES.get(dtype, str(dtype).removeprefix("torch."))
            return original(context)
        self._dtype = override
        with autocast_as(context, None if override == "float32" else DTYPES[override]):
            return original(context)


def active() -> bool:
    """Whether autocast is on just now, for any device."""
    return torch.is_autocast_enabled("cpu") or (
        torch.cuda.is_available() and torch.is_autocast_enabled("cuda")
    )
