"""How far gradients were clipped, from the clip itself: no second pass over them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from ampwatch.probe import private


class ClipWatch:
    """Calls ``clipped(parameters, max_norm, total_norm)`` at each clipping by norm."""

    def __init__(self, clipped: Callable[[list[Tensor], float, Tensor], None]) -> None:
        self._clipped = clipped
        self._original: Any = None
        self._wrapper: Any = None

    def open(self) -> None:
        original = private.clip_function()

        @functools.wraps(original)
        def clip(
            parameters: Tensor | Iterable[Tensor],
            max_norm: float,
            total_norm: Tensor,
            *args: Any,
            **kwargs: Any,
        ) -> None:
            given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            if self._wrapper is not None:
                self._clipped(given, float(max_norm), total_norm)
            original(given, max_norm, total_norm, *args, **kwargs)

        self._original, self._wrapper = original, clip
        private.set_clip_function(clip)

    def close(self) -> None:
        """Put the original back, unless somebody else has wrapped it since."""
        if private.clip_function() is self._wrapper:
            private.set_clip_function(self._original)
        self._wrapper = None
