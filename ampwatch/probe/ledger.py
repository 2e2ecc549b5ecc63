"""Which backward passes there were, with which losses, and whose gradients carry the scale."""

from __future__ import annotations

from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.probe import private
from ampwatch.probe.losses import Losses, scaled_by_hand
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.parameters import Parameters, trained

PARAMETERS_READ = 4
"""If the loop has cleared its gradients, it has cleared those of the first parameters."""
GRAPHS_READ = 8
"""So many backward passes show the order of gradients; after that no graph is walked any more."""


class Ledger:
    """Kept from one call of the loop to the next.

    Attributes:
        losses: of the step that is being taken.
        passes: how many backward passes there have been; states of optimizers refer to it.
    """

    def __init__(self, names: Parameters) -> None:
        self.losses = Losses()
        self.passes = 0
        self._names = names
        self.open: dict[int, OptimizerState] = {}
        """States whose gradients unscale_ has divided, and whose step is still to come."""
        self.mixed: set[int] = set()
        """Those of them that have got scaled gradients since."""
        self.left: dict[int, OptimizerState] = {}
        """States whose gradients unscale_ has divided and no step has used, when update() came."""
        self.unscaled_at = -1
        """The latest backward pass of a loss that was not scaled."""
        self.by_hand: float | None = None
        """The factor by which the loop multiplies its loss itself, as far as it was looked for."""
        self._scaled_at = -1
        self._reached: set[int] = set()
        self._reached_unscaled: set[int] = set()
        self._unscaled_walks = 0

    def back(self, roots: list[Tensor]) -> list[Tensor]:
        """A backward pass begins; those of its roots that were not made from scaled losses."""
        self.passes += 1
        back = self.losses.back
        unscaled = [root for root in roots if not back(root)]
        if len(unscaled) < len(roots):
            self._scaled_at = self.passes
        first = self.passes <= GRAPHS_READ
        self.by_hand = scaled_by_hand(unscaled[0]) if unscaled and first else None
        if unscaled:
            self.unscaled_at = self.passes
            self._unscaled_walks += 1
        if first or self.open or (unscaled and self._unscaled_walks <= GRAPHS_READ):
            reached = self._names.learn_order(roots)
            if not unscaled:
                self._reached |= reached
            elif len(unscaled) == len(roots):
                self._reached_unscaled |= reached
            for key, state in list(self.open.items()):
                if not reached.isdisjoint(state.ids):
                    self.mixed.add(key)
        return unscaled

    def leave(self) -> None:
        """An update has come: what was unscaled and not stepped will be unscaled once more."""
        self.left = dict(self.open)
        self.open.clear()
        self.mixed.clear()

    def look_back(self) -> None:
        """Whether gradients that were left unscaled are still there when a backward pass begins;
        if so they get scaled ones on top."""
        for key, state in self.left.items():
            optimizer = state.ref()
            if optimizer is not None and any(map(_filled, trained(optimizer)[:PARAMETERS_READ])):
                self.mixed.add(key)
        self.left.clear()

    def unscaled_in(self, state: OptimizerState) -> bool:
        """Whether a loss that was not scaled has part in an optimizer's gradients."""
        if self.unscaled_at <= state.stepped_at:
            return False
        return not self._reached_unscaled or not self._reached_unscaled.isdisjoint(state.ids)

    @property
    def scaled_at(self) -> int:
        """The latest backward pass of a scaled loss."""
        return self._scaled_at

    def unscaled_now(self, state: OptimizerState) -> bool:
        """Whether ``unscale_`` has divided an optimizer's gradients since its last step."""
        return id(state.ref()) in self.open

    def passed_by(self, state: OptimizerState, optimizer: Optimizer) -> bool:
        """Whether a scaler has had to do with gradients that are now applied without it."""
        if state.unscaled_at > state.stepped_at or state.unscaled_at == self.passes:
            return True  # unscaled for this step, or stepped once already
        if self._scaled_at <= state.stepped_at:
            return False
        if self.unscaled_at > self._scaled_at and self.unscaled_in(state):
            # The loss of another network came through here before; then gradients were cleared.
            return False
        return not self._reached or not self._reached.isdisjoint(map(id, trained(optimizer)))

    def scale_in(
        self, scaler: GradScaler | None, state: OptimizerState, optimizer: Optimizer
    ) -> GradScaler | None:
        """The scaler, if its scale is in an optimizer's gradients just now."""
        if scaler is None or not scaler.is_enabled() or state.unscaled_at == self.passes:
            return None
        if self._scaled_at <= state.stepped_at or private.is_unscaled(scaler, optimizer):
            return None
        return scaler if self.passed_by(state, optimizer) else None


def _filled(parameter: Tensor) -> bool:
    gradient = parameter.grad
    return gradient is not None and gradient.device.type == "cpu" and bool(gradient.any())
