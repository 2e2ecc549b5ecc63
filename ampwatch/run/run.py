"""Everything that is known about one run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from ampwatch.history import History
from ampwatch.plot.spec import Mark
from ampwatch.record import (
    ActivationStats,
    Record,
    RunEnd,
    RunInfo,
    StepAnatomy,
    StepRecord,
    TensorStats,
)
from ampwatch.run.bursts import BurstLedger
from ampwatch.run.detail_steps import joined
from ampwatch.run.events import EventLog
from ampwatch.run.fact_log import FactLog
from ampwatch.run.gradient_levels import GradientLevels
from ampwatch.run.knob_turns import harder, knob_changes, knobs
from ampwatch.run.marks import Marks
from ampwatch.run.narrator import Narrator
from ampwatch.run.scale_changes import ScaleChange, ScaleTrack
from ampwatch.run.scale_levels import ScaleLevels
from ampwatch.run.series import Optimizer, SeriesSet
from ampwatch.run.skip_causes import SkipCauses
from ampwatch.run.spans import Span, note
from ampwatch.run.timing import Timing
from ampwatch.run.trends import Trends
from ampwatch.words import scale_words

MOST_NAMES = 10_000
MOST_ANATOMIES = 64
"""Each is asked for by hand; one of a deep model takes some 100 kB."""


class Run:
    """A run, live or recorded. :meth:`add` is the only way in; one thread calls it.

    Memory does not grow with the number of steps, but for eight bytes a skipped step.
    """

    def __init__(self) -> None:
        self.info: RunInfo | None = None
        self.end: RunEnd | None = None
        self.last: StepRecord | None = None
        self.tensors: TensorStats | None = None
        """Of the latest detail step."""
        self.finite_tensors: TensorStats | None = None
        """Of the latest detail step without inf and NaN."""
        self.activations: ActivationStats | None = None
        """Of the latest detail step at which they were seen."""
        self.finite_activations: ActivationStats | None = None
        self.anatomies: deque[StepAnatomy] = deque(maxlen=MOST_ANATOMIES)
        """Steps that were taken apart, the latest one last."""
        self.steps = 0
        """How many steps the run has come to: the last step's number and one."""
        self.records = 0
        """Step records taken in: more than the steps when there are several optimizers."""
        self.skipped = 0
        """Steps at which the scaler dropped the step of at least one optimizer."""
        self.nonfinite_steps = 0
        """Steps with inf or NaN in the loss or the gradients, skipped or not."""
        self.disordered = 0
        """Records that came after later ones and were left out."""
        self.origins: Counter[str] = Counter()
        self.facts = FactLog()
        """Where each fact of the hook was seen."""
        self.levels = ScaleLevels()
        self.gradients = GradientLevels()
        self.trends: dict[str | None, Trends] = {}
        """What the numbers of each optimizer do."""
        self.modes: dict[tuple[str | None, str | None], Span] = {}
        """Where which dtype and scaler ("dynamic", "static", "off", None) were in force."""
        self.events = EventLog()
        self.scale = ScaleTrack()
        self.bursts = BurstLedger()
        self._causes = SkipCauses()
        self._marks = Marks()
        self._narrator = Narrator(self.events)
        self._series = SeriesSet()
        self._timing = Timing()
        self._last_nonfinite = -1
        self._last_turn: tuple[int, str] | None = None

    def add(self, record: Record) -> None:
        """Take one record in."""
        if isinstance(record, StepRecord):
            self._step(record)
        elif isinstance(record, TensorStats):
            self.tensors = joined(self.tensors, record)
            if not any(record.nonfinite):
                self.finite_tensors = joined(self.finite_tensors, record)
            self._narrator.tensors = len(record.name)
            self.gradients.see(record, self.last)
        elif isinstance(record, ActivationStats):
            self.activations = joined(self.activations, record)
            if not any(record.nonfinite):
                self.finite_activations = joined(self.finite_activations, record)
        elif isinstance(record, StepAnatomy):
            self.anatomies.append(record)
        elif isinstance(record, RunInfo):
            self.info = record
            if record.tensors:
                self._narrator.tensors = len(record.tensors)
            if record.scaler is not None:
                self.scale.configure(record.scaler)
        elif isinstance(record, RunEnd):
            self.end = record
            self._narrator.ended(record)
        else:
            self._narrator.notice(max(0, self.steps - 1), record)

    # What the front ends ask for.

    @property
    def anatomy(self) -> StepAnatomy | None:
        """The step that was taken apart last."""
        return self.anatomies[-1] if self.anatomies else None

    @property
    def first(self) -> StepRecord | None:
        """The first step that was recorded."""
        return self._timing.first

    @property
    def series(self) -> dict[str, History]:
        """All series by name: "loss", "scale", "grad_norm:Adam 2", "metrics.accuracy"."""
        return self._series.all

    @property
    def skipped_steps(self) -> Sequence[int]:
        """The numbers of the skipped steps, counted from 0."""
        return self._marks.skipped_steps

    @property
    def skipped_by(self) -> dict[str, int]:
        """How many steps of each optimizer were skipped; one without a name counts as ""."""
        return {name or "": known.skipped for name, known in self._series.optimizers.items()}

    @property
    def optimizers(self) -> list[str]:
        """Their names, in the order in which they first stepped."""
        return [name or "" for name in self._series.optimizers]

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The marks of the whole run, as many as a plot of it can show."""
        return self.marks_between(0, max(0, self.steps - 1))

    def marks_between(self, first: int, last: int) -> tuple[Mark, ...]:
        """Skipped steps and changes by key from step ``first`` to ``last``, both included."""
        return self._marks.between(first, last)

    def named(self, quantity: str) -> list[tuple[str, History]]:
        """The series of one quantity, one an optimizer: label and history."""
        return self._series.named(quantity)

    def steps_per_second(self) -> float | None:
        """Over the last few seconds of the records' own clock."""
        return self._timing.recent_rate()

    def rate(self) -> float | None:
        """Steps a second over the whole run."""
        return self._timing.whole_rate()

    def steps_until_growth(self) -> int | None:
        """How many more steps without an overflow the scale needs to grow."""
        return None if self.last is None else self.scale.steps_until_growth(self.last)

    def final_scale(self) -> float | None:
        """The scale after the update of the latest step."""
        if self.last is None or self.last.scale is None or self.last.scaler == "off":
            return None if self.last is None else self.last.scale
        return self.scale.expected(self.last)

    def overhead(self) -> float | None:
        """Share of the run's time that was spent in ampwatch."""
        return self._timing.overhead()

    def summary(self) -> dict[str, Any]:
        """The run in one object, as ``--json`` prints it; findings are the session's to add."""
        last, end = self.last, self.end
        return {
            "name": None if self.info is None else self.info.name,
            "status": "running" if end is None else end.status,
            "error": None if end is None else end.error,
            "steps": self.steps,
            "skipped": self.skipped,
            "skipped_steps": list(self.skipped_steps),
            "skipped_by": self.skipped_by,
            "nonfinite_steps": self.nonfinite_steps,
            "origins": dict(self.origins.most_common()),
            "final_scale": self.final_scale(),
            "final_loss": None if last is None else self._final_loss(),
            "dtype": None if last is None else last.dtype,
            "scaler": None if last is None else last.scaler,
            "overhead": self.overhead(),
            "rate": self.rate(),
        }

    def _final_loss(self) -> float | None:
        """The latest loss that was seen: not every optimizer has one."""
        known = [
            o.last for o in self._series.optimizers.values() if o.last and o.last.loss is not None
        ]
        return max(known, key=lambda record: record.step).loss if known else None

    # How a step is taken in; every line here runs once a step.

    def _step(self, record: StepRecord) -> None:
        last = self.last
        step = record.step
        if last is not None and step < last.step:
            self.disordered += 1
            return
        known = self._series.optimizer(record.optimizer)
        before = known.last
        if before is not None and knobs(before) != knobs(record):
            self._turned(before, record)
        change = self.scale.see(record)
        if change is not None:
            self._scale_changed(step, change)
        self.records += 1
        self.steps = step + 1
        self._series.keep(known, record)
        self._timing.see(record)
        note(self.modes, (record.dtype, record.scaler), step)
        for fact in record.facts:
            self.facts.note(fact, step)
        self._narrator.optimizers = len(self._series.optimizers)
        trends = self.trends.get(known.name)
        if trends is None:
            trends = self.trends[known.name] = Trends()
        trends.see(before, record)
        self.last = known.last = record
        if record.skipped:
            self._skipped(known, record, before)
        else:
            self.levels.see(record)
            if self.bursts.attentive:
                self.bursts.taken(record)
            loss = record.loss
            if record.nonfinite_tensors or (loss is not None and loss - loss != 0):
                self._nonfinite(record)
                self._narrator.nonfinite_taken(record)

    def _skipped(self, known: Optimizer, record: StepRecord, before: StepRecord | None) -> None:
        steps = self._marks.skipped_steps
        if not steps or steps[-1] != record.step:
            self.skipped += 1
            self._marks.skip(record.step)
        known.skipped += 1
        self._nonfinite(record)
        cause = self._causes.of(record)
        self.levels.see(record, cause)
        usual = self.trends[known.name].loss.usual(record.losses)
        self._narrator.skipped(self.bursts.skipped(record, self.scale, cause, before, usual))

    def _nonfinite(self, record: StepRecord) -> None:
        if record.step != self._last_nonfinite:
            self.nonfinite_steps += 1
            self._last_nonfinite = record.step
        origin = record.origin
        if origin is not None and (origin in self.origins or len(self.origins) < MOST_NAMES):
            self.origins[origin] += 1

    def _turned(self, before: StepRecord, record: StepRecord) -> None:
        """A knob has another value than at this optimizer's step before."""
        for name, text in knob_changes(before, record):
            if (record.step, text) == self._last_turn:
                continue  # the same key, seen from the next optimizer
            self._last_turn = (record.step, text)
            self._narrator.turned(
                record.step, name if name in ("dtype", "scaler") else "knob", text
            )
            self._marks.knob(record.step, text)
        for trends in self.trends.values():
            trends.reset()
        if harder(before, record):
            self.bursts.expect_settling(record.step)

    def _scale_changed(self, step: int, change: ScaleChange) -> None:
        self.levels.changed(step, change)
        burst = self.bursts.scale_changed(step, change)
        if burst is not None:
            self._narrator.skipped(burst)
        initial = None
        if self.info is not None and self.info.scaler is not None:
            initial = self.info.scaler.init_scale
        self._narrator.scale_changed(step, change, initial)
        if change.kind == "set":
            self._marks.knob(step, f"scale {scale_words(change.after)}")
