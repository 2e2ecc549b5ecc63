"""The gradients that flow between modules, looked at on their way through backward.

Before a backward pass hooks go onto the nodes of that loss's own graph, and they are taken off
when it is over. So no module is touched, scripts that know nothing of us are seen too, and since
a hook returns nothing, not a bit changes. These are the gradients as autograd has them: times the
scale, and in the dtype that autocast chose. They decide how far the scale may grow.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ampwatch.probe.dtypes import dtype_name
from ampwatch.probe.exponents import MOST_FLOWING, ExponentCounts, divided, together
from ampwatch.probe.gradients import count_nonfinite, dense
from ampwatch.probe.node_hooks import NodeHooks
from ampwatch.probe.operations import PASSING, Naming, Operation, operations_of
from ampwatch.probe.private import compiled_autograd
from ampwatch.probe.transfer import at_hand
from ampwatch.record import ActivationStats

OPAQUE = ("CompiledFunction", "CheckpointFunction", "DifferentiableGraph")
"""Nodes that stand for many operations: torch.compile, re-entrant checkpointing, TorchScript. What
flows inside cannot be seen, and a headroom without it would be wrong."""
MOST_VISITS = 4000
"""So many gradients are looked at in one pass; those nearest the loss come first."""


class Row(NamedTuple):
    """What is told as one: a module's output, or what follows it up to the next module."""

    name: str
    after: bool
    dtype: str


class Flow:
    """The gradients of one backward pass, perhaps still on their way from a device.

    Args:
        choice: where sampling of large gradients begins.
    """

    __slots__ = ("_sizes", "exponents", "hook_seconds", "known", "scalars", "seconds", "visits")

    def __init__(self, choice: random.Random) -> None:
        self.exponents = ExponentCounts((), choice, MOST_FLOWING)
        self.scalars: list[Tensor] = []
        """Largest magnitude and count of inf and NaN, one pair a visit, where they come late."""
        self.known: list[float] = []
        """The same where they are known at once."""
        self.visits: list[Row] = []
        self._sizes: list[int] = []
        self.hook_seconds = 0.0
        self.seconds = 0.0
        """What looking took in all."""

    def see(self, row: Row, gradients: Sequence[Tensor | None]) -> None:
        begun = time.perf_counter()
        with torch.no_grad():
            for gradient in gradients:
                if gradient is not None and len(self.visits) < MOST_VISITS:
                    self._look(row, gradient)
        self.hook_seconds += time.perf_counter() - begun

    def _look(self, row: Row, gradient: Tensor) -> None:
        values = dense(gradient.detach())
        if not values.is_floating_point() or not values.numel():
            return
        low, high = torch.aminmax(values)  # NaN comes through, as it should
        if at_hand(values):
            largest = max(-low.item(), high.item())
            bad = 0 if largest - largest == 0 else int(count_nonfinite(values))
            self.known += [largest, bad]
        else:
            self.scalars += [torch.maximum(low.abs(), high.abs()), count_nonfinite(values)]
        self.exponents.add(values)
        dtype = dtype_name(values.dtype)
        self.visits.append(row._replace(dtype=dtype))
        self._sizes.append(values.numel())

    def record(self, step: int, late: Sequence[float], scale: float | None) -> ActivationStats:
        """One row for each place, nearest the loss first.

        Args:
            late: what became of :attr:`scalars`.
        """
        divisor = scale or 1.0
        numbers = list(late) if late else self.known
        parts: dict[Row, list[int]] = {}
        for place, row in enumerate(self.visits):
            parts.setdefault(row, []).append(place)
        counts = self.exponents.rows()
        rows = [together([counts[place] for place in places]) for places in parts.values()]
        return ActivationStats(
            step,
            tuple(row.name for row in parts),
            tuple(row.after for row in parts),
            tuple(row.dtype for row in parts),
            tuple(_largest(numbers[2 * n] for n in places) / divisor for places in parts.values()),
            tuple(sum(int(numbers[2 * n + 1]) for n in places) for places in parts.values()),
            tuple(sum(self._sizes[n] for n in places) for places in parts.values()),
            tuple(divided(rows, divisor)),
            scale,
        )


class FlowProbe:
    """Looks at the backward pass that it is armed for.

    Args:
        names: of parameters, for those of modules.
        choice: where sampling of large gradients begins.
    """

    def __init__(self, names: Naming, choice: random.Random) -> None:
        self._names = names
        self._choice = choice
        self._hooks = NodeHooks()
        self._flow: Flow | None = None
        self.step = -1
        """The step whose backward pass was looked at last."""
        self.cost = 0.0
        """Seconds that the latest look took."""
        self.blind = False
        """Much of this model's backward pass cannot be seen."""

    @property
    def armed(self) -> bool:
        return self._hooks.armed

    def waiting(self, step: int) -> bool:
        """Whether a backward pass of this step was seen whose optimizer has not stepped yet."""
        return self._flow is not None and self.step == step

    def arm(self, roots: list[Tensor], step: int) -> None:
        """The backward pass of ``step`` that begins now is looked at."""
        begun = time.perf_counter()
        self.step = step
        operations = operations_of(roots, self._names, saved=False)
        if compiled_autograd() or any(each.title in OPAQUE for each in operations):
            self.blind = True
            return
        flow = self._flow = Flow(self._choice)
        ends = [root.grad_fn for root in roots]
        for row, operation in placed(operations):
            if operation.node not in ends:  # what comes in there is no gradient yet, but 1
                self._hooks.before(operation.node, functools.partial(flow.see, row))
        flow.seconds = time.perf_counter() - begun

    def done(self) -> float:
        """The pass is over; seconds that were spent in the middle of it."""
        self._hooks.remove()
        if self._flow is None:
            return 0.0
        if self._hooks.failed:
            self.blind, self._flow = True, None
            return 0.0
        begun = time.perf_counter()
        self._flow.exponents.send()
        self._flow.seconds += time.perf_counter() - begun + self._flow.hook_seconds
        self.cost = self._flow.seconds
        return self._flow.hook_seconds

    def forget(self) -> None:
        self._flow, self.step = None, -1

    def take(self, step: int) -> Flow | None:
        """What was seen, if it was of this step."""
        flow, self._flow = self._flow, None
        return flow if self.step == step and flow is not None and flow.visits else None


def placed(operations: Iterable[Operation]) -> list[tuple[Row, Operation]]:
    """The operations whose gradient tells something, and what it is told as."""
    result = []
    begun = False
    for operation in operations:
        weights = operation.weights()
        if operation.title in PASSING and (operation.title != "ToCopy" or weights):
            continue  # a cast on the way has a gradient of its own; that of a weight is its affair
        begun = begun or bool(weights)
        if begun:
            name = operation.module or operation.after or ""
            result.append((Row(name, not weights, ""), operation))
    return result


def _largest(values: Iterable[float]) -> float:
    """The maximum, or NaN where there is one: max() depends on the order then."""
    largest = 0.0
    for value in values:
        if value != value:
            return value
        largest = max(largest, value)
    return largest
