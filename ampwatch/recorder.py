"""Makes the records of a loop, and says what the run is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.guard import Guard
from ampwatch.host import Host
from ampwatch.probe.draft import Around, Sent
from ampwatch.probe.finders import ModelFinder
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.optimizers import Optimizers
from ampwatch.probe.parameters import Parameters
from ampwatch.probe.steps import StepReader
from ampwatch.record import NO_METRICS, StepRecord
from ampwatch.tally import Tally

if TYPE_CHECKING:
    from ampwatch.knobs import Knobs

Told = tuple[int, int, str | None, int | None, int]


class Recorder:
    """Everything of a record that is not read off gradients comes together here.

    Args:
        guard: keeps the time we take.
        host: takes the records.
        names: of the parameters.
        optimizers: those that are watched.
        share: of the training time that we may take.
    """

    def __init__(
        self, guard: Guard, host: Host, names: Parameters, optimizers: Optimizers, share: float
    ) -> None:
        self.host = host
        self.reader = StepReader(guard, names, self._take, share, self.named)
        self.tally = Tally()
        self.facts: set[str] = set()
        """What only the hook can see of the step that is being taken."""
        self.metrics: dict[str, float] = {}
        self.late: dict[str, Tensor] = {}
        """Metrics that are still on a device."""
        self.total: int | None = None
        """How many steps are planned."""
        self.finder = ModelFinder()
        self.names = names
        self._optimizers = optimizers
        self._told: Told | None = None

    def emit(
        self,
        state: OptimizerState,
        optimizer: Optimizer,
        found: list[Tensor],
        losses: list[Tensor] | list[float],
        dtype: str,
        scaler: GradScaler | None,
        knobs: Knobs,
    ) -> None:
        """An optimizer's step is over.

        Args:
            found: found_inf, where the scaler has looked.
            losses: what was back-propagated for it.
            dtype: what the step was computed in.
            scaler: the loop's own.
        """
        mode = knobs.mode_of(scaler)
        states = self._optimizers.states
        alone = len(states) == 1
        told = (
            len(states),
            len(state.parameters) if alone else 0,
            mode,
            self.total,
            id(scaler) if alone else 0,  # a new one may have other settings
        )
        if told != self._told:
            self._told = told
            self._tell(state, knobs)
        assert state.reading is not None
        if not state.reading.index:
            self.facts.add("no-gradients")
        around = Around(
            self.host.time(),
            dtype,
            mode,
            knobs.target_gain,
            knobs.loss_gain,
            tuple(sorted(self.facts)) if self.facts else (),
            self.metrics or NO_METRICS,
            tuple(self.late) if self.late else (),
        )
        late = list(self.late.values()) if self.late else []
        self.facts.clear()
        if self.metrics or late:
            self.metrics, self.late = {}, {}
        self.host.reached(self.reader.step)
        self.reader.emit(state, optimizer, found, losses, late, around, self.host.waited)

    def emit_refused(
        self,
        state: OptimizerState,
        optimizer: Optimizer,
        losses: list[Tensor] | list[float],
        dtype: str,
        scaler: GradScaler | None,
        knobs: Knobs,
    ) -> None:
        """The scaler refused these gradients; why is worth a record, as the script may end here."""
        reading = state.reading
        assert reading is not None
        if reading.half:
            self.facts.add("fp16-gradients")
        elif reading.gradients:
            state.forget()  # refused for the order of calls: torch's own error says it all
            return
        self.facts.add("step-refused")
        self.emit(state, optimizer, [], losses, dtype, scaler, knobs)

    def named(self, parameters: list[Tensor]) -> list[str]:
        """Their names, "" for one without; models that were not handed over are looked for."""
        if not all(map(self.names.known, parameters)) and self._optimizers.everything:
            self.names.add_models(self.finder.owners(parameters))
        return list(map(self.names.known, parameters))

    def _tell(self, state: OptimizerState, knobs: Knobs) -> None:
        if self._optimizers.everything:
            self.names.add_models(self.finder.owners(state.parameters))
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        parameters = self._optimizers.parameters()
        order = self.names.backward_order(parameters)
        self.host.describe(
            torch=str(torch.__version__),
            device=str(parameters[0].device) if parameters else None,
            rank=torch.distributed.get_rank() if distributed else 0,
            world_size=torch.distributed.get_world_size() if distributed else 1,
            parameters=sum(parameter.numel() for parameter in parameters),
            tensors=tuple(self.names.name(parameters[i], 0, i) for i in order),
            scaler=knobs.scaler_info(),
            total_steps=self.total,
        )

    def _take(self, record: Sent) -> None:
        self.host.put(record)
        if isinstance(record, StepRecord):
            self.tally.add(record)
