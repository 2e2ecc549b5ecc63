"""Numbers from a device without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def at_hand(tensor: Tensor) -> bool:
    """Whether its values can be read without waiting for a device."""
    return tensor.device.type == "cpu"


class Transfer:
    """Scalars on their way to the host.

    On the CPU they are read at once. From a GPU they are gathered there, copied to pinned memory
    without blocking, and ready once the device has come to that point of its stream.

    Args:
        groups: real tensors of one element each, or numbers, in as many lists as the caller likes;
            or, in place of such a list, one tensor of one dimension.
        device: where most of them are.
    """

    __slots__ = ("_event", "_host", "_known", "_values")

    def __init__(
        self,
        groups: Sequence[Sequence[Tensor] | Sequence[float] | Tensor],
        device: torch.device | None,
    ) -> None:
        self._values: list[list[float]] | None = None
        if device is None or device.type != "cuda":
            # No event to ask on other devices; on the CPU there is nothing to wait for.
            self._values = [
                group.tolist()
                if isinstance(group, Tensor)
                else [each.item() if isinstance(each, Tensor) else each for each in group]
                for group in groups
            ]
            return
        self._known, far = apart(groups)
        with torch.no_grad(), torch.cuda.device(device):
            # float64, or a norm of large values would not fit.
            numbers = [each.to(device, torch.float64, non_blocking=True) for each in far]
            packed = torch.cat(numbers) if numbers else torch.empty(0, device=device)
            # The script may have a default device, where nothing can be pinned.
            self._host = torch.empty(
                packed.shape, dtype=packed.dtype, device="cpu", pin_memory=True
            )
            self._host.copy_(packed, non_blocking=True)
            self._event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def ready(self) -> bool:
        """Whether :meth:`values` answers without waiting."""
        return self._values is not None or bool(self._event.query())

    def values(self) -> list[list[float]]:
        """The numbers, in the order of the tensors; waits for the device where it must."""
        if self._values is None:
            self._event.synchronize()
            numbers = iter(self._host.tolist())
            self._values = [
                [next(numbers) if each is None else each for each in row] for row in self._known
            ]
        return self._values


def as_tensor(number: Tensor | float) -> Tensor:
    """The tensor itself; a number as one on the host, whatever the script's default device."""
    return number if isinstance(number, Tensor) else torch.tensor(number, device="cpu")


def apart(
    groups: Sequence[Sequence[Tensor] | Sequence[float] | Tensor],
) -> tuple[list[list[float | None]], list[Tensor]]:
    """The numbers that are here already, with None for each that is not; and those, in that order,
    as tensors of one dimension. What is here stays: to send it to a device would wait for it."""
    known: list[list[float | None]] = []
    far: list[Tensor] = []
    for group in groups:
        row: list[float | None] = []
        for each in (group,) if isinstance(group, Tensor) else group:
            if not isinstance(each, Tensor):
                row.append(each)
            elif at_hand(each):
                row += each.detach().reshape(-1).tolist()
            else:
                far.append(each.detach().reshape(-1))
                row += [None] * each.numel()
        known.append(row)
    return known, far
