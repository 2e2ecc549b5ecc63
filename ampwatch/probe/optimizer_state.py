"""What is going on with one optimizer between two of its steps."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from torch import Tensor
from torch.optim import Optimizer

from ampwatch.probe.activations import Flow
from ampwatch.probe.backward_origin import LateOrigin
from ampwatch.probe.clipping import Clip
from ampwatch.probe.detail import Figures
from ampwatch.probe.gradients import Reading
from ampwatch.probe.late_inquest import LateInquest
from ampwatch.probe.left import Left
from ampwatch.probe.movement import Movement
from ampwatch.probe.parameters import trained
from ampwatch.probe.statistics import LateStatistics


class OptimizerState:
    """Filled from the reading of its gradients until its record is made, then empty again."""

    __slots__ = (
        "clips",
        "counts",
        "figures",
        "figures_scaled",
        "flow",
        "ids",
        "in_scaler",
        "inquests",
        "label",
        "left",
        "made_at",
        "movement",
        "origin",
        "parameters",
        "ran",
        "read_at",
        "reading",
        "ref",
        "scale",
        "scaler",
        "stale",
        "statistics",
        "stepped_at",
        "suspect",
        "unscaled_at",
        "values",
    )

    def __init__(self, optimizer: Optimizer, label: str) -> None:
        self.ref = weakref.ref(optimizer)
        self.label = label
        self.ids = frozenset(map(id, trained(optimizer)))
        """ids of what it trained when it was first seen."""
        self.scaler: int | None = None
        """id of the scaler that last unscaled or stepped it; -1 when that one is gone."""
        self.suspect: weakref.ref[Tensor] | None = None
        """A parameter whose gradient was inf or NaN at its last step."""
        self.stale: bool | None = None
        """Whether that gradient was so before every backward pass since; None before the first."""
        self.left: Left | None = None
        """What its latest skipped step left behind, where gradients cannot be looked at."""
        self.unscaled_at = self.stepped_at = self.read_at = -1
        """How many backward passes there had been."""
        self.forget()

    def forget(self) -> None:
        """Ready for the next step; keeps nothing of the loop's alive."""
        self.in_scaler = False
        self.ran = False
        self.parameters: list[Tensor] = []
        self.reading: Reading | None = None
        self.values: list[float] | None = None
        self.figures: Figures | None = None
        self.figures_scaled = True
        self.flow: Flow | None = None
        """The activation gradients of its backward pass, at a detail step."""
        self.counts: list[Tensor] | None = None
        self.scale: tuple[Tensor, ...] = ()
        self.clips: list[Clip] = []
        self.origin: LateOrigin | None = None
        """What will tell where inf or NaN in its gradients began."""
        self.inquests: Sequence[LateInquest] = ()
        """What will tell where inf or NaN in its losses came from."""
        self.movement: Movement | None = None
        self.statistics: LateStatistics | None = None
        """The running statistics at its end, where numbers come late."""
        self.made_at: tuple[int, Tensor] | None = None
        """Its latest scaled backward pass and the scale then, where an update came since."""
