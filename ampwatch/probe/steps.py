"""From the calls of a loop to one record a step.

The gradients of an optimizer are read at the first of ``unscale_``, clipping and ``step``, while
they still carry the scale; whether the step was skipped is taken from found_inf once ``step`` has
returned; the record goes out as soon as its numbers have come from the device.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.guard import Guard
from ampwatch.probe import private
from ampwatch.probe.activations import FlowProbe
from ampwatch.probe.anatomy_values import capturing
from ampwatch.probe.backward_origin import LateOrigin
from ampwatch.probe.budget import Budget
from ampwatch.probe.detail import EARLY_STEPS, Figures, Spacing
from ampwatch.probe.draft import Around, Draft, Sent
from ampwatch.probe.exponents import SEED
from ampwatch.probe.gradients import SMALLEST, Reading, count_nonfinite, doubtful, exact_norm
from ampwatch.probe.healthy import healthy_record
from ampwatch.probe.injection import put_inf
from ampwatch.probe.late_inquest import LateInquest
from ampwatch.probe.news import News
from ampwatch.probe.operations import Naming
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.parameters import Parameters
from ampwatch.probe.scaler import scale_in_force
from ampwatch.probe.transfer import Transfer

LONG_ROW = 8
"""After so many overflows in a row the gradients are always looked at."""
COUNT_AFTER_SKIP_STEPS = 32
"""Where numbers come late, non-finite values are counted ahead for so many steps after a skip."""


class StepReader:
    """Reads gradients and makes records.

    Args:
        guard: keeps the time we take.
        names: of the parameters.
        send: takes the records.
        share: of the training time that we may take.
        naming: of parameters that an optimizer may not have shown yet.
    """

    def __init__(
        self,
        guard: Guard,
        names: Parameters,
        send: Callable[[Sent], None],
        share: float,
        naming: Naming,
    ) -> None:
        self._guard = guard
        self._names = names
        self._send = send
        self.pending: deque[tuple[Transfer, Draft]] = deque()
        self.budget = Budget(share)
        self.spacing = Spacing(self.budget)
        self._choice = random.Random(SEED)
        self.flow = FlowProbe(naming, self._choice)
        self.origin: LateOrigin | None = None
        """Seen in the latest backward pass, for the optimizer that steps next."""
        self.inquests: list[LateInquest] = []
        """Of the backward passes for the optimizer that steps next."""
        self.news = News()
        self._stepped: dict[int, frozenset[int]] = {}
        self._together, self._armed = 1, 0
        self._overflowing = False
        self._row = 0
        """Steps in a row with inf or NaN."""
        self._last_emit: float | None = None
        self.step = 0
        """Number of the step that is being taken."""
        self.inject = False
        """Put one inf into the next gradients that a scaler will check."""
        self._waited = 0.0

    def read(self, state: OptimizerState, optimizer: Optimizer, scaler: GradScaler | None) -> None:
        """Take the norms of the optimizer's gradients as they are now.

        Args:
            scaler: whose scale is in the gradients, if any.
        """
        stepped = id(optimizer) in self._stepped
        if not stepped and state.stepped_at < 0:
            # One that takes another's place begins a new step; a second one beside it does not.
            stepped = any(not state.ids.isdisjoint(ids) for ids in self._stepped.values())
        if stepped:
            self._together = len(self._stepped)
            self._stepped.clear()
            self.step += 1
        if self.flow.step > self.step:
            self.flow.forget()  # it was for this step: another optimizer had yet to take part in it
        parameters = state.parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        if scaler is not None:
            if not private.is_unscaled(scaler, optimizer):
                state.scale = scale_in_force(scaler)
            if self.inject:
                self.inject = not put_inf(parameters)
        state.origin, self.origin = self.origin, None
        if self.inquests:
            state.inquests, self.inquests = self.inquests, []
        state.reading = reading = Reading(parameters)
        values = state.values = reading.values
        if values is None and reading.gradients and capturing(reading.gradients[0]):
            state.reading = None  # no number may leave the device, and no event may be asked
            return
        if values is not None:
            row = self._row
            if min(values) >= SMALLEST and math.isfinite(sum(values)):
                self._overflowing = False
            else:
                self._look_closer(state, reading, values)
            if not self._overflowing:
                self._row = 0
                if row >= LONG_ROW or (row and self.affords(self.spacing.cost)):
                    self._detail(state)  # what the overflows have left of the scale
        elif self._armed > 0:
            # Where numbers come late, what followed a skip is counted before anything clips it.
            state.counts = [count_nonfinite(gradient) for gradient in reading.gradients]
        if state.figures is None and self.spacing.due(self.step):
            self._detail(state)

    def before_backward(self, roots: list[Tensor]) -> None:
        """A backward pass begins; where a detail step is due, what flows in it is looked at."""
        flow = self.flow
        step = self.coming()
        if not self.spacing.due(step) or flow.blind or flow.waiting(step) or capturing(roots[0]):
            return
        if flow.step in (-1, step) or step not in EARLY_STEPS or self.affords(flow.cost):
            flow.arm(roots, step)
            self.budget.loud(detail=True)

    def _look_closer(self, state: OptimizerState, reading: Reading, values: list[float]) -> None:
        """Tell infinities from norms that only overflow, before a clip wipes the evidence."""
        zero = torch.zeros((), device="cpu")
        counts = [zero] * len(values)
        overflowing = False
        for position, value in enumerate(values):
            gradient = reading.gradients[position]
            if not doubtful(gradient, value):
                continue
            count = zero if math.isfinite(value) else count_nonfinite(gradient)
            if count:
                counts[position] = count
                overflowing = True
            else:
                values[position] = exact_norm(gradient)
        if overflowing:
            self._row += 1
            state.counts = counts
            # The first of a row of overflows is always worth a look, the others while time allows.
            if not self._overflowing or self.affords(self.spacing.cost):
                self._detail(state)
        self._overflowing = overflowing

    def _detail(self, state: OptimizerState) -> None:
        begun = time.perf_counter()
        assert state.reading is not None
        state.figures = Figures(state.reading.gradients, self._choice)
        if state.flow is None:
            state.flow = self.flow.take(self.step)
        seconds = time.perf_counter() - begun + (0.0 if state.flow is None else state.flow.seconds)
        self.spacing.took(self.step, seconds, self.step_seconds())

    def emit(
        self,
        state: OptimizerState,
        optimizer: Optimizer,
        found: list[Tensor],
        losses: list[Tensor] | list[float],
        late: list[Tensor],
        around: Around,
        waited: float,
    ) -> None:
        """The optimizer's step is over: make its record.

        Args:
            found: found_inf, where a scaler has looked.
            losses: what was back-propagated for it, without the scale.
            late: metrics that are still on a device.
            around: what is known without torch.
            waited: seconds the loop has been held back in all.
        """
        reading = state.reading
        assert reading is not None
        self._stepped[id(optimizer)] = state.ids
        if found and not state.ran and state.values is None and state.counts is None:
            # The scaler has just waited for the device itself: its flag is known, so these
            # kernels run on skipped steps alone. It has unscaled what is read here.
            state.counts = [count_nonfinite(gradient) for gradient in reading.gradients]
            if state.figures is None:
                self._detail(state)
                state.figures_scaled = False
        overhead = self._share(waited)
        if (
            reading.values
            and state.counts is None
            and state.figures is None
            and not (state.clips or late or self.pending or "step-refused" in around.facts)
        ):
            record = healthy_record(
                self.step, state, optimizer, reading.values, found, losses, around, overhead
            )
            state.forget()
            self._send(record)
            return
        device = reading.device
        if device is None and losses and isinstance(losses[0], Tensor):
            device = losses[0].device
        transfer = Transfer(
            (
                reading.norms,
                found,
                state.scale,
                losses,
                late,
                [clip.total for clip in state.clips] if state.clips else (),
                state.counts or (),
                () if state.figures is None else state.figures.scalars,
                () if state.flow is None else state.flow.scalars,
                () if state.origin is None else state.origin.scalars,
                () if state.movement is None else state.movement.scalars,
                () if state.statistics is None else state.statistics.scalars,
                *(inquest.scalars for inquest in state.inquests),
            ),
            device,
        )
        draft = Draft(self.step, self._names, state, optimizer, around, overhead)
        state.forget()
        if self.pending or not transfer.ready():
            self.pending.append((transfer, draft))
            self.flush(wait=False)
        else:
            self._finish(transfer, draft)

    def affords(self, seconds: float) -> bool:
        """Whether one more look of so many seconds keeps the expensive ones inside their share."""
        return self.budget.affords(seconds, self.step_seconds())

    def step_seconds(self) -> float:
        """How long a step of the loop takes."""
        return self.budget.elapsed / max(self.step, 1)

    def has_stepped(self, optimizer: Optimizer) -> bool:
        """Whether this optimizer's record of the current step has been made."""
        return id(optimizer) in self._stepped

    def coming(self) -> int:
        """Number of the step that a backward pass which begins now is for."""
        return self.step + (bool(self._stepped) and self.complete())

    def complete(self) -> bool:
        """Whether as many optimizers have stepped as in the step before."""
        return len(self._stepped) >= self._together

    def flush(self, *, wait: bool) -> None:
        """Send the records whose numbers have come; all of them if ``wait``."""
        while self.pending and (wait or self.pending[0][0].ready()):
            self._finish(*self.pending.popleft())

    def _finish(self, transfer: Transfer, draft: Draft) -> None:
        if draft.detailed:
            self.budget.loud(detail=True)  # of the record that comes next
        skipped = draft.finish(transfer.values(), self._send, self.news.remains)
        if skipped:
            self._armed = COUNT_AFTER_SKIP_STEPS
        elif self._armed:
            self._armed -= 1
        self.news.add(draft, skipped)

    def _share(self, waited: float) -> float | None:
        """Our share of the time since the last record, without what the loop was held back."""
        now = time.perf_counter()
        spent, self._guard.spent = self._guard.spent, 0.0
        last, self._last_emit = self._last_emit, now
        held, self._waited = waited - self._waited, waited
        if last is None:
            return None
        elapsed = max(now - last - held, 1e-9)
        of_detail = self.budget.record(spent, elapsed)
        if of_detail:
            self.spacing.settle(of_detail, self.step_seconds())
        return min(spent / elapsed, 1.0)
