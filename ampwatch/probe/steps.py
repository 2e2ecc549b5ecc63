"""From the calls of a loop to one record a step.

The gradients of an optimizer are read at the first of ``unscale_`` and ``step``, while they still
carry the scale; whether the step was skipped is taken from found_inf once ``step`` has returned;
the record goes out as soon as its numbers have come from the device.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.probe import private
from ampwatch.probe.detail import Figures, Spacing
from ampwatch.probe.gradients import Reading, count_nonfinite, exact_norm, total_norm
from ampwatch.probe.parameters import Parameters, trained
from ampwatch.probe.scaler import scale_in_force
from ampwatch.probe.transfer import Transfer
from ampwatch.record import StepRecord, TensorStats

CLIP_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad: the clip multiplies by max_norm / (total_norm + 1e-6)."""


class OptimizerState:
    """What is going on with one optimizer between two of its steps."""

    __slots__ = (
        "clips",
        "counts",
        "figures",
        "figures_scaled",
        "in_scaler",
        "label",
        "parameters",
        "ran",
        "reading",
        "ref",
        "scale",
        "tracker",
        "values",
    )

    def __init__(self, optimizer: Optimizer, label: str) -> None:
        self.ref = weakref.ref(optimizer)
        self.label = label
        self.in_scaler = False
        self.ran = False
        self.forget()

    def forget(self) -> None:
        """Ready for the next step; keeps nothing of the loop's alive."""
        self.parameters: list[Tensor] = []
        self.reading: Reading | None = None
        self.values: list[float] | None = None
        self.figures: Figures | None = None
        self.figures_scaled = True
        self.counts: list[Tensor] | None = None
        self.scale: Tensor | None = None
        self.tracker: Tensor | None = None
        self.clips: list[tuple[set[int], float, Tensor]] = []


class StepReader:
    """Reads gradients and makes records.

    Args:
        parameters: their names.
        sink: takes the records.
        share: of the training time that detail steps may take.
    """

    def __init__(
        self,
        parameters: Parameters,
        sink: Callable[[StepRecord | TensorStats], None],
        share: float,
    ) -> None:
        self._parameters = parameters
        self._sink = sink
        self._pending: deque[tuple[Transfer, Callable[[list[float]], None]]] = deque()
        self._spacing = Spacing(share)
        self._stepped: set[int] = set()
        self._armed = 0
        self._overflowing = False
        self._last_emit: float | None = None
        self._detail_spent = 0.0
        self.step = 0
        """Number of the step that is being taken."""
        self.inject = False
        """Put one inf into the next gradients that are read."""
        self.spent = 0.0
        """Seconds of our own since the last record."""
        self.elapsed = 0.0
        self._waited = 0.0

    # -- reading ------------------------------------------------------------------------------

    def read(self, state: OptimizerState, optimizer: Optimizer, scaler: GradScaler | None) -> None:
        """Take the norms of the optimizer's gradients as they are now."""
        if id(optimizer) in self._stepped:
            self._stepped.clear()
            self.step += 1
        state.parameters = trained(optimizer)
        if self.inject:
            self.inject = not _put_inf(state.parameters)
        state.reading = reading = Reading(state.parameters)
        if scaler is not None and not private.is_unscaled(scaler, optimizer):
            state.scale, state.tracker = scale_in_force(scaler)
        if reading.device is not None and reading.device.type == "cpu":
            state.values = Transfer(reading.norms).values()
            self._look_closer(state)
        elif self._armed > 0:
            # Where numbers come late, what followed a skip is counted before anything clips it.
            state.counts = [count_nonfinite(gradient) for gradient in reading.gradients]
        if state.figures is None and self._spacing.due(self.step):
            self._detail(state)

    def _look_closer(self, state: OptimizerState) -> None:
        """Tell infinities from norms that only overflow, before a clip wipes the evidence."""
        reading, values = state.reading, state.values
        assert reading is not None
        assert values is not None
        if all(map(math.isfinite, values)):
            self._overflowing = False
            return
        zero = torch.zeros(())
        counts = [zero] * len(values)
        for position, value in enumerate(values):
            if not math.isfinite(value):
                gradient = reading.gradients[position]
                counts[position] = count = count_nonfinite(gradient)
                if not count:
                    values[position] = exact_norm(gradient)
        state.counts = counts
        # The first of a row of overflows is always worth a look, the others while time allows.
        if not self._overflowing or self._spacing.affordable(self._detail_spent, self.elapsed):
            self._detail(state)
        self._overflowing = True

    def _detail(self, state: OptimizerState) -> None:
        begun = time.perf_counter()
        assert state.reading is not None
        state.figures = Figures(state.reading.gradients)
        seconds = time.perf_counter() - begun
        self._detail_spent += seconds
        steps = max(self.step, 1)
        self._spacing.took(self.step, seconds, self.elapsed / steps)

    # -- records ------------------------------------------------------------------------------

    def emit(
        self,
        state: OptimizerState,
        optimizer: Optimizer,
        scaler: GradScaler | None,
        losses: list[Tensor],
        late: list[Tensor],
        around: dict[str, Any],
        waited: float,
    ) -> None:
        """The optimizer's step is over: make its record.

        Args:
            losses: what was back-propagated for it, without the scale.
            late: metrics that are still on a device, in the order of ``around["late"]``.
            around: fields of the record that are known without torch.
            waited: seconds the loop has been held back in all.
        """
        reading = state.reading
        if reading is None:
            state.forget()
            return
        self._stepped.add(id(optimizer))
        on_device = state.values is None and bool(reading.gradients)
        found = private.found_infs(scaler, optimizer) if state.in_scaler and scaler else []
        if found and not state.ran and on_device and state.counts is None:
            # The scaler has just waited for the device itself: its flag is known, so these
            # kernels run on skipped steps alone. It has unscaled what is read here.
            state.counts = [count_nonfinite(gradient) for gradient in reading.gradients]
            if state.figures is None:
                self._detail(state)
                state.figures_scaled = False
        groups: list[list[Tensor]] = [
            [] if state.values is not None else reading.norms,
            found,
            [] if state.scale is None else [state.scale],
            [] if state.tracker is None else [state.tracker],
            losses,
            late,
            [total for _, _, total in state.clips],
            state.counts or [],
            [] if state.figures is None else state.figures.scalars,
        ]
        flat = [tensor for group in groups for tensor in group]
        if on_device:
            device = reading.device
            flat = [tensor.to(device, non_blocking=True) for tensor in flat]
        transfer = Transfer(flat)
        sizes = [len(group) for group in groups]
        record = _Draft(self, state, optimizer, reading, sizes, around, self._share(waited))
        state.forget()
        if not self._pending and transfer.ready():
            record.finish(transfer.values())
        else:
            self._pending.append((transfer, record.finish))
            self.flush(wait=False)

    def has_stepped(self, optimizer: Optimizer) -> bool:
        """Whether this optimizer's record of the current step has been made."""
        return id(optimizer) in self._stepped

    def flush(self, *, wait: bool) -> None:
        """Send the records whose numbers have come; all of them if ``wait``."""
        while self._pending and (wait or self._pending[0][0].ready()):
            transfer, finish = self._pending.popleft()
            finish(transfer.values())

    def _share(self, waited: float) -> float | None:
        """Our share of the time since the last record, without what the loop was held back."""
        now = time.perf_counter()
        spent, self.spent = self.spent, 0.0
        last, self._last_emit = self._last_emit, now
        held, self._waited = waited - self._waited, waited
        if last is None:
            return None
        elapsed = max(now - last - held, 1e-9)
        self.elapsed += elapsed
        return min(spent / elapsed, 1.0)

    def arm(self, skipped: bool) -> None:
        """After a skip count non-finite values ahead for a while, where numbers come late."""
        self._armed = 32 if skipped else max(self._armed - 1, 0)

    def send(self, record: StepRecord | TensorStats) -> None:
        self._sink(record)

    @property
    def names(self) -> Parameters:
        return self._parameters


class _Draft:
    """A record that waits for its numbers."""

    __slots__ = (
        "around",
        "clips",
        "figures",
        "figures_scaled",
        "index",
        "label",
        "lr",
        "order",
        "overhead",
        "owner",
        "parameters",
        "sizes",
        "step",
        "values",
    )

    def __init__(
        self,
        owner: StepReader,
        state: OptimizerState,
        optimizer: Optimizer,
        reading: Reading,
        sizes: list[int],
        around: dict[str, Any],
        overhead: float | None,
    ) -> None:
        self.owner = owner
        self.step = owner.step
        self.label = state.label
        self.parameters = state.parameters
        self.index = reading.index
        self.values = state.values
        self.figures = None if state.figures is None else state.figures.sizes
        self.figures_scaled = state.figures_scaled
        self.clips = [(ids, max_norm) for ids, max_norm, _ in state.clips]
        self.sizes = sizes
        self.around = around
        self.overhead = overhead
        self.lr = _learning_rate(optimizer)

    def finish(self, numbers: list[float]) -> None:
        parts: list[list[float]] = []
        start = 0
        for size in self.sizes:
            parts.append(numbers[start : start + size])
            start += size
        norms, found, scales, trackers, losses, late, totals, counts, figures = parts
        norms = norms if self.values is None else self.values
        scale = scales[0] if scales else None
        divisor = scale if scale else 1.0  # a scale of 0 cannot be divided out
        skipped = any(found) if found else (False if self.around["scaler"] else None)
        bad = [position for position, norm in enumerate(norms) if not math.isfinite(norm)]
        if counts:
            bad = [position for position, count in enumerate(counts) if count]
        measured = bool(norms)
        maxima = figures[0::3]
        if self.figures_scaled:
            maxima = [value / divisor for value in maxima]
        self.owner.arm(bool(skipped))
        self.owner.send(
            StepRecord(
                self.step,
                self.around["time"],
                sum(losses) / len(losses) if losses else None,
                len(losses) or None,
                scale,
                int(trackers[0]) if trackers else None,
                skipped,
                total_norm(norms) / divisor if measured else None,
                self._clipped_norm(norms, totals, divisor) if totals else None,
                max(maxima) if maxima else None,
                len(bad) if measured else None,
                int(sum(counts)) if counts else (0 if measured and not bad else None),
                self._origin(bad) if bad else None,
                self.around["dtype"],
                self.around["scaler"],
                self.lr,
                self.label,
                self.around["target_gain"],
                self.around["loss_gain"],
                self.overhead,
                self.around["facts"],
                {**self.around["metrics"], **dict(zip(self.around["late"], late, strict=True))},
            )
        )
        if figures and self.figures is not None:
            self._send_figures(norms, maxima, figures, self.figures, divisor)

    def _clipped_norm(self, norms: list[float], totals: list[float], divisor: float) -> float:
        """The norm after clipping, from the clip's own formula."""
        clipped = list(norms)
        for (ids, max_norm), total in zip(self.clips, totals, strict=True):
            factor = min(1.0, max_norm / (total + CLIP_EPSILON))
            for position, parameter in enumerate(self.index):
                if id(self.parameters[parameter]) in ids:
                    clipped[position] *= factor
        return total_norm(clipped) / divisor

    def _name(self, position: int) -> str:
        parameter = self.index[position]
        return self.owner.names.name(self.parameters[parameter], 0, parameter)

    def _backward_order(self) -> list[int]:
        return self.owner.names.backward_order([self.parameters[index] for index in self.index])

    def _origin(self, bad: list[int]) -> str:
        among = set(bad)
        return self._name(next(place for place in self._backward_order() if place in among))

    def _send_figures(
        self,
        norms: list[float],
        maxima: list[float],
        figures: list[float],
        sizes: list[int],
        divisor: float,
    ) -> None:
        order = self._backward_order()
        self.owner.send(
            TensorStats(
                self.step,
                tuple(self._name(place) for place in order),
                tuple(norms[place] / divisor for place in order),
                tuple(maxima[place] for place in order),
                tuple(int(figures[3 * place + 1]) for place in order),
                tuple(int(figures[3 * place + 2]) for place in order),
                tuple(sizes[place] for place in order),
            )
        )


def _learning_rate(optimizer: Optimizer) -> float | None:
    """Of the first group; a tensor on a device stays unread."""
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    if isinstance(rate, Tensor):
        return float(rate) if rate.device.type == "cpu" and rate.numel() == 1 else None
    return float(rate) if isinstance(rate, (int, float)) else None


def _put_inf(parameters: list[Tensor]) -> bool:
    """Make the first value of the first gradient infinite, as an overflow would."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None and gradient.layout is torch.strided and gradient.numel():
            with torch.no_grad():
                gradient.view(-1)[0] = math.inf
            return True
    return False
