"""Running statistics that hold inf or NaN. A skipped step protects weights; buffers it does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ampwatch.probe.parameters import plain_name
from ampwatch.probe.transfer import at_hand
from ampwatch.record.facts import fact

STATISTICS = ("running_mean", "running_var")


class Buffer(NamedTuple):
    """One of a module's running statistics, by the names of the user's code."""

    module: str
    name: str
    values: Tensor


def spoilt(models: Iterable[nn.Module], *, waited: bool = False) -> Iterator[Buffer]:
    """Those that hold inf or NaN, one of a module.

    Args:
        waited: somebody has just waited for the device; else only the CPU is looked at.
    """
    told = set()
    for buffer in _buffers(models):
        readable = waited or at_hand(buffer.values)
        if readable and buffer.module not in told and not bool(_bad(buffer.values) == 0):
            told.add(buffer.module)
            yield buffer


class LateStatistics:
    """All of them, while their numbers are on a device.

    Attributes:
        scalars: how many values of each buffer are inf or NaN.
    """

    __slots__ = ("_buffers", "scalars")

    def __init__(self, models: Iterable[nn.Module]) -> None:
        buffers = list(_buffers(models))
        self._buffers = [(buffer.module, buffer.name) for buffer in buffers]
        self.scalars = [_bad(buffer.values) for buffer in buffers]

    def facts(self, numbers: Sequence[float]) -> set[str]:
        """What is spoilt; ``numbers`` became of the scalars."""
        found: dict[str, str] = {}
        for (module, name), bad in zip(self._buffers, numbers, strict=True):
            if bad:
                found.setdefault(module, name)
        return {as_fact(module, name) for module, name in found.items()}


def as_fact(module: str, buffer: str) -> str:
    """That this buffer holds inf or NaN."""
    return fact("batchnorm-statistics", module=module, buffer=buffer)


def _buffers(models: Iterable[nn.Module]) -> Iterator[Buffer]:
    for model in models:
        for name, module in model.named_modules():
            for statistic in STATISTICS:
                values = getattr(module, statistic, None)
                if isinstance(values, Tensor):
                    called = plain_name(model, name) or type(module).__name__
                    yield Buffer(called, statistic, values)


def _bad(values: Tensor) -> Tensor:
    return (~torch.isfinite(values)).sum()
