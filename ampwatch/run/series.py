"""The series of a run: one history a quantity, and a set of its own for each optimizer."""

from __future__ import annotations

from typing import Any

from ampwatch.history import History
from ampwatch.record import StepRecord

QUANTITIES = (
    "loss",
    "grad_norm",
    "clipped_norm",
    "grad_max",
    "nonfinite_tensors",
    "nonfinite_values",
    "lr",
)
"""What is kept for each optimizer by itself; the scale and the overhead are the run's."""
_SLOTS = tuple((slot, StepRecord._fields.index(name)) for slot, name in enumerate(QUANTITIES))

MOST_SERIES = 128
"""A loop that makes up a new metric name at each step must not eat the memory."""
MOST_OPTIMIZERS = 16


class Optimizer:
    """What is remembered of one optimizer between its steps."""

    __slots__ = ("last", "name", "series", "skipped")

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.last: StepRecord | None = None
        self.series: list[History | None] = [None] * len(QUANTITIES)
        self.skipped = 0


class SeriesSet:
    """All series of a run, by name: "loss", "scale", "grad_norm:Adam 2", "metrics.accuracy"."""

    __slots__ = ("all", "optimizers")

    def __init__(self) -> None:
        self.all: dict[str, History] = {}
        self.optimizers: dict[str | None, Optimizer] = {}

    def optimizer(self, name: str | None) -> Optimizer:
        """What is known of the optimizer of this name; beyond sixteen they share the last one."""
        known = self.optimizers.get(name)
        if known is None:
            if len(self.optimizers) >= MOST_OPTIMIZERS:
                return next(reversed(self.optimizers.values()))
            known = self.optimizers[name] = Optimizer(name)
        return known

    def keep(self, known: Optimizer, record: StepRecord) -> None:
        """Add the record's numbers; runs once a step."""
        step = record.step
        series = known.series
        fields: tuple[Any, ...] = record
        for slot, index in _SLOTS:
            value = fields[index]
            if value is not None:
                history = series[slot]
                if history is None:
                    history = self._begin(known, slot)
                history.add(step, value)
        if record.scale is not None:
            self._of_run("scale").add(step, record.scale)
        if record.overhead is not None:
            self._of_run("overhead").add(step, record.overhead)
        for metric, number in record.metrics.items():
            name = f"metrics.{metric}"
            if name in self.all or len(self.all) < MOST_SERIES:
                self._of_run(name).add(step, number)

    def named(self, quantity: str) -> list[tuple[str, History]]:
        """The series of one quantity, one an optimizer: label and history.

        The label is the optimizer's name, or the quantity where there is only one.
        """
        if quantity not in QUANTITIES:
            found = self.all.get(quantity)
            return [] if found is None else [(quantity, found)]
        slot = QUANTITIES.index(quantity)
        pairs = [(name, known.series[slot]) for name, known in self.optimizers.items()]
        present = [(name or quantity, history) for name, history in pairs if history is not None]
        return [(quantity, present[0][1])] if len(present) == 1 else present

    def _of_run(self, name: str) -> History:
        history = self.all.get(name)
        if history is None:
            history = self.all[name] = History()
        return history

    def _begin(self, known: Optimizer, slot: int) -> History:
        first = known is next(iter(self.optimizers.values()))
        name = QUANTITIES[slot] if first else f"{QUANTITIES[slot]}:{known.name or 'unnamed'}"
        history = known.series[slot] = self.all[name] = History()
        return history
