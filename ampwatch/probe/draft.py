"""A record that waits for its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from torch import Tensor
from torch.optim import Optimizer

from ampwatch.probe.dtypes import dtype_name
from ampwatch.probe.exponents import divided
from ampwatch.probe.gradients import total_norm
from ampwatch.probe.news import OF_INPUT, Remains
from ampwatch.probe.parameters import Parameters
from ampwatch.record import NO_METRICS, ActivationStats, Exponents, StepRecord, TensorStats
from ampwatch.record.facts import fact

if TYPE_CHECKING:
    from ampwatch.probe.optimizer_state import OptimizerState

Sent: TypeAlias = StepRecord | TensorStats | ActivationStats
"""What one step of an optimizer can give."""
HIDDEN = "forward-overflow"
"""An inf in a divisor makes 0 of everything, and no loss shows it."""


class Around(NamedTuple):
    """What of a record is known without asking a device."""

    time: float
    dtype: str
    scaler: str | None
    target_gain: float
    loss_gain: float
    facts: tuple[str, ...] = ()
    metrics: Mapping[str, float] = NO_METRICS
    late: tuple[str, ...] = ()
    """Names of the metrics that are still on a device."""


class Draft:
    """One step of one optimizer; :meth:`records` once its numbers have come."""

    __slots__ = (
        "_around",
        "_clips",
        "_exponents",
        "_figures_scaled",
        "_flow",
        "_index",
        "_inquests",
        "_label",
        "_lr",
        "_movement",
        "_names",
        "_origin_search",
        "_overhead",
        "_parameters",
        "_sizes",
        "_statistics",
        "_step",
        "_values",
        "explained",
        "finite_loss",
        "vanished",
    )

    def __init__(
        self,
        step: int,
        names: Parameters,
        state: OptimizerState,
        optimizer: Optimizer,
        around: Around,
        overhead: float | None,
    ) -> None:
        assert state.reading is not None
        self._step = step
        self._names = names
        self._label = state.label
        self._parameters = state.parameters
        self._index = state.reading.index
        self._values = state.values
        self._sizes = None if state.figures is None else state.figures.sizes
        self._exponents = None if state.figures is None else state.figures.exponents
        self._figures_scaled = state.figures_scaled
        self._flow = state.flow
        self._origin_search = state.origin
        self._inquests = state.inquests
        self._statistics = state.statistics
        self._movement = state.movement
        self._clips = state.clips
        self._around = around
        self._overhead = overhead
        self._lr = learning_rate(optimizer)
        self.finite_loss = True
        """Whether its losses were so; known once it is finished, as is the next one."""
        self.explained = False
        """Whether its graphs have told where inf or NaN began."""
        self.vanished = False
        """Whether the gradient of some parameter is 0 throughout, as far as it was looked at."""

    @property
    def step(self) -> int:
        return self._step

    @property
    def detailed(self) -> bool:
        """Whether figures of each parameter or activation go with it."""
        return self._sizes is not None or self._flow is not None

    def finish(
        self, numbers: list[list[float]], send: Callable[[Sent], None], remains: Remains
    ) -> bool:
        """Send the record, and the figures of each parameter if there are any.

        Args:
            remains: of the steps before.

        Returns:
            Whether the step was skipped.
        """
        norms, found, scale_and_tracker, losses, late, totals, counts, *looks = numbers
        figures, flow, nodes, moved, statistics, *answers = looks
        around = self._around
        if self._values is not None:
            norms = self._values
        if totals:
            norms = self._unclipped(norms, totals)
        scale = scale_and_tracker[0] if scale_and_tracker else None
        divisor = scale if scale else 1.0  # a scale of 0 cannot be divided out
        if found:
            skipped: bool | None = any(found)
        elif "step-refused" in around.facts:
            skipped = None
        else:
            skipped = False if around.scaler else None
        norm = total_norm(norms) if norms else None
        bad: list[int] = []
        if counts:
            bad = [position for position, count in enumerate(counts) if count]
        elif norm is not None and not math.isfinite(norm):
            bad = [position for position, each in enumerate(norms) if not math.isfinite(each)]
        maxima = figures[0::3]
        if self._figures_scaled and divisor != 1.0:
            maxima = [value / divisor for value in maxima]
        metrics = around.metrics
        if late:
            metrics = {**metrics, **dict(zip(around.late, late, strict=True))}
        self.finite_loss = all(map(math.isfinite, losses))
        self.vanished = bool(figures) and 0.0 in norms
        facts = self._facts(nodes, [] if skipped else moved, statistics, answers, remains)
        send(
            StepRecord(
                self._step,
                around.time,
                sum(losses) / len(losses) if losses else None,
                len(losses) or None,
                scale,
                int(scale_and_tracker[1]) if len(scale_and_tracker) > 1 else None,
                skipped,
                None if norm is None else norm / divisor,
                self._clipped_norm(norms, totals) / divisor if totals else None,
                _largest(maxima) if maxima else None,
                None if norm is None else len(bad),
                None if norm is None else (int(sum(counts)) if counts else 0 if not bad else None),
                self._origin(bad) if bad else None,
                around.dtype,
                around.scaler,
                self._lr,
                self._label,
                around.target_gain,
                around.loss_gain,
                self._overhead,
                facts,
                metrics,
            )
        )
        if figures and self._sizes is not None:
            rows = [] if self._exponents is None else self._exponents.rows()
            if self._figures_scaled:
                rows = divided(rows, divisor)
            stats = self._stats([each / divisor for each in norms], maxima, figures, self._sizes)
            send(self._with_exponents(stats, rows, scale))
        if self._flow is not None:
            send(self._flow.record(self._step, flow, scale))
        return bool(skipped)

    def _facts(
        self,
        nodes: list[float],
        moved: list[float],
        statistics: list[float],
        answers: list[list[float]],
        remains: Remains,
    ) -> tuple[str, ...]:
        """Those that were known, and those that the numbers tell."""
        fresh = self._statistics.facts(statistics) if self._statistics is not None else set()
        known = self._around.facts
        causes = [
            cause
            for inquest, numbers in zip(self._inquests, answers, strict=True)
            if (cause := inquest.fact(numbers)) is not None
        ]
        if self.finite_loss:
            remains.finite()
            believed = causes = [cause for cause in causes if cause.startswith(HIDDEN)]
        else:
            handed = [cause for cause in known if cause.startswith(OF_INPUT)]
            believed = remains.believed(handed + causes)
        self.explained = bool(causes)
        fresh.update(believed)
        if self._origin_search is not None:
            origin = self._origin_search.fact(nodes)
            if origin is not None and self.finite_loss:
                self.explained = True
                fresh.add(origin)
        still = self._movement.still(moved) if self._movement is not None and moved else None
        if still is not None and self._lr:
            name = self._names.name(still, 0, 0)
            dtype = dtype_name(still.dtype)
            fresh.add(fact("weights-still", tensor=name, dtype=dtype))
        return tuple(sorted(fresh.union(known))) if fresh else known

    def _times(self, norms: list[float], factor: float, ids: set[int]) -> list[float]:
        return [
            norm * factor if id(self._parameters[parameter]) in ids else norm
            for norm, parameter in zip(norms, self._index, strict=True)
        ]

    def _unclipped(self, norms: list[float], totals: list[float]) -> list[float]:
        """The norms before the clips that came before the reading."""
        for clip, total in zip(self._clips, totals, strict=True):
            factor = clip.factor(total)
            if clip.before_reading and 0.0 < factor < 1.0:
                norms = self._times(norms, 1.0 / factor, clip.ids)
        return norms

    def _clipped_norm(self, norms: list[float], totals: list[float]) -> float:
        """The norm after clipping, from the clip's own formula."""
        for clip, total in zip(self._clips, totals, strict=True):
            factor = clip.factor(total)
            if factor != 1.0:
                norms = self._times(norms, factor, clip.ids)
        return total_norm(norms)

    def _name(self, position: int) -> str:
        parameter = self._index[position]
        return self._names.name(self._parameters[parameter], 0, parameter)

    def _backward_order(self) -> list[int]:
        return self._names.backward_order([self._parameters[index] for index in self._index])

    def _origin(self, bad: list[int]) -> str:
        among = set(bad)
        return self._name(next(place for place in self._backward_order() if place in among))

    def _stats(
        self, norms: list[float], maxima: list[float], figures: list[float], sizes: list[int]
    ) -> TensorStats:
        order = self._backward_order()
        return TensorStats(
            self._step,
            tuple(self._name(place) for place in order),
            tuple(norms[place] for place in order),
            tuple(maxima[place] for place in order),
            tuple(int(figures[3 * place + 1]) for place in order),
            tuple(int(figures[3 * place + 2]) for place in order),
            tuple(sizes[place] for place in order),
        )

    def _with_exponents(
        self, stats: TensorStats, rows: list[Exponents], scale: float | None
    ) -> TensorStats:
        ordered = tuple(rows[place] for place in self._backward_order()) if rows else ()
        return replace(stats, exponents=ordered, scale=scale)


def _largest(values: list[float]) -> float:
    """The maximum, or NaN where there is one: max() depends on the order then."""
    return math.nan if any(value != value for value in values) else max(values)


def learning_rate(optimizer: Optimizer) -> float | None:
    """Of the first group; a tensor on a device stays unread."""
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    if isinstance(rate, Tensor):
        return float(rate) if rate.device.type == "cpu" and rate.numel() == 1 else None
    return float(rate) if isinstance(rate, (int, float)) else None
