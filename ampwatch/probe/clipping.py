"""How far gradients were clipped, from the clip itself: no second pass over them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor

from ampwatch.probe import private
from ampwatch.probe.patch import Listeners, Patch

CLIP_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad: the clip multiplies by max_norm / (total_norm + 1e-6)."""


class Clip(NamedTuple):
    """One clipping by norm."""

    ids: set[int]
    """ids of the parameters whose gradients were clipped."""
    max_norm: float
    total: Tensor
    before_reading: bool = False
    """Whether the gradients had been clipped already when they were read."""

    def factor(self, total: float) -> float:
        """What the gradients were multiplied by; NaN too, as torch does it."""
        factor = self.max_norm / (total + CLIP_EPSILON) if total != -CLIP_EPSILON else math.inf
        return 1.0 if factor >= 1.0 else factor


class ClipWatch:
    """Calls ``clipping(parameters, max_norm, total_norm)`` ahead of each clipping by norm."""

    def __init__(self, clipping: Callable[[list[Tensor], float, Tensor], None]) -> None:
        self.clipping = clipping

    def open(self) -> None:
        _patch.add(self)

    def close(self) -> None:
        _patch.remove(self)


def _wrap(original: Any, listeners: Listeners[ClipWatch]) -> Any:
    @functools.wraps(original)
    def clip(
        parameters: Tensor | Iterable[Tensor],
        max_norm: float,
        total_norm: Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if listeners.all:
            parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            max_norm = float(max_norm)  # as the original does: it may be a tensor on a device
            for watch in listeners.all:
                watch.clipping(parameters, max_norm, total_norm)
        original(parameters, max_norm, total_norm, *args, **kwargs)

    return clip


_patch: Patch[ClipWatch] = Patch(private.clip_function, private.set_clip_function, _wrap)
