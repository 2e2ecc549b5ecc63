"""Numbers from a device without waiting for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Transfer:
    """Scalars on their way to the host.

    On the CPU they are read at once. On a device they are gathered there, copied to pinned memory
    without blocking, and ready once the device has come to that point of its stream.

    Args:
        tensors: real tensors of one element each, all on the same device.
    """

    __slots__ = ("_event", "_host", "_values")

    def __init__(self, tensors: list[Tensor]) -> None:
        self._values: list[float] | None = None
        self._host: Tensor | None = None
        self._event: Any = None  # torch leaves its events untyped
        if not tensors:
            self._values = []
        elif tensors[0].device.type == "cuda":
            with torch.no_grad(), torch.cuda.device(tensors[0].device):
                packed = torch.stack([t.detach().reshape(()).float() for t in tensors])
                self._host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
                self._host.copy_(packed, non_blocking=True)
                self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._event.record()
        else:
            # No event to ask on other devices; on the CPU there is nothing to wait for.
            self._values = [t.item() for t in tensors]

    def ready(self) -> bool:
        """Whether :meth:`values` answers without waiting."""
        return self._values is not None or bool(self._event.query())

    def values(self) -> list[float]:
        """The numbers, in the order of the tensors; waits for the device where it must."""
        if self._values is None:
            assert self._host is not None
            self._event.synchronize()
            self._values = self._host.tolist()
            self._host = self._event = None
        return self._values
