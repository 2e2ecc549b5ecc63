"""Numbers that come late, as from a GPU: nothing can be read at once, and the records come steps
after their time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ampwatch import trouble as trouble_module
from ampwatch.probe import activations as activations_module
from ampwatch.probe import backward_origin as backward_origin_module
from ampwatch.probe import gradients as gradients_module
from ampwatch.probe import late_inquest as late_inquest_module
from ampwatch.probe import steps as steps_module
from ampwatch.probe.gradients import Reading


class SlowTransfer:
    """Copies at once, as a stream does in its own order, and is ready some steps later."""

    made: list[SlowTransfer] = []  # noqa: RUF012
    lag = 3

    def __init__(
        self, groups: Sequence[Sequence[Tensor | float]], device: torch.device | None
    ) -> None:
        self._values = [[float(each) for each in group] for group in groups]
        SlowTransfer.made.append(self)
        self._number = len(SlowTransfer.made)

    def ready(self) -> bool:
        return len(SlowTransfer.made) >= self._number + SlowTransfer.lag

    def values(self) -> list[list[float]]:
        return self._values


class Elsewhere:
    """Says that it is no CPU, so that nothing is read at once."""

    type = "elsewhere"


def make_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on numbers come late."""
    SlowTransfer.made.clear()
    monkeypatch.setattr(steps_module, "Transfer", SlowTransfer)
    original = Reading.__init__

    def read(self: Reading, parameters: Any) -> None:
        original(self, parameters)
        if self.device is not None:
            self.device = Elsewhere()  # type: ignore[assignment]
            self.norms = [torch.linalg.vector_norm(gradient) for gradient in self.gradients]

    monkeypatch.setattr(Reading, "__init__", read)
    monkeypatch.setattr(gradients_module, "_values", lambda gradients, odd: None)
    late = (activations_module, backward_origin_module, late_inquest_module, trouble_module)
    for module in late:
        monkeypatch.setattr(module, "at_hand", lambda tensor: False)
