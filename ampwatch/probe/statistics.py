"""Running statistics that hold inf or NaN. A skipped step protects weights; buffers it does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from ampwatch.probe.parameters import plain_name
from ampwatch.probe.transfer import at_hand

STATISTICS = ("running_mean", "running_var")


def spoilt(models: Iterable[nn.Module], *, waited: bool = False) -> Iterator[tuple[str, str]]:
    """Module and buffer, by the names of the user's code.

    Args:
        waited: somebody has just waited for the device; else only the CPU is looked at.
    """
    for model in models:
        for name, module in model.named_modules():
            for buffer in STATISTICS:
                values = getattr(module, buffer, None)
                if not isinstance(values, Tensor) or not (waited or at_hand(values)):
                    continue
                if not bool(torch.isfinite(values).all()):
                    yield plain_name(model, name) or type(module).__name__, buffer
                    break
