"""Puts what happens from step to step into sentences."""

from __future__ import annotations

import math

from ampwatch.record import Notice, RunEnd, StepRecord
from ampwatch.run.burst import Burst
from ampwatch.run.events import Event, EventLog
from ampwatch.run.origins import Origin, began, origin_of
from ampwatch.run.scale_changes import ScaleChange
from ampwatch.words import count_words, number_words, scale_words

TOLD_BY_RECORDS = frozenset({"dtype", "scaler", "scale", "target_gain", "loss_gain"})


class Narrator:
    """Writes a run's events; what goes on is one event that grows."""

    __slots__ = ("_bad", "_burst", "_burst_event", "_grown", "events", "optimizers", "tensors")

    def __init__(self, events: EventLog) -> None:
        self.events = events
        self.tensors = 0
        """How many gradient tensors the run has, where known."""
        self.optimizers = 0
        self._burst: Burst | None = None
        self._burst_event: Event | None = None
        self._grown: Event | None = None
        self._bad: Event | None = None

    def skipped(self, burst: Burst) -> None:
        """A step was skipped, or what is known of the latest skips has changed."""
        event = Event(
            burst.first,
            "skip",
            "error" if burst.kind == "forward" else "warning",
            skip_text(burst, self.tensors, self.optimizers),
            burst.origin,
            burst.count,
            burst.last if burst.last > burst.first else None,
        )
        self.events.add(event, self._burst_event if burst is self._burst else None)
        self._burst, self._burst_event = burst, event
        self._grown = None

    def scale_changed(self, step: int, change: ScaleChange, initial: float | None) -> None:
        """The scale grew or was set; its fall is told with the skip."""
        if change.kind == "grew":
            self._grew(step, change)
        elif change.kind == "set":
            text = f"the scale was set from {scale_words(change.before)} to "
            text += scale_words(change.after)
            if change.after == initial:
                text += ", its initial value"
            self.events.add(Event(step, "scale-set", "info", text))
            self._grown = None

    def _grew(self, step: int, change: ScaleChange) -> None:
        old = self._grown
        doubled = change.after == 2 * change.before
        verb = "doubled" if doubled else "grew"
        if old is None:
            text = f"the scale {verb} to {scale_words(change.after)} after "
            text += f"{count_words(change.clean_steps, 'step')} without overflow"
            event = Event(step, "growth", "info", text)
        else:
            count = old.count + 1
            text = f"the scale {verb} {count:,} times without overflow between, now "
            text += scale_words(change.after)
            event = Event(old.step, "growth", "info", text, None, count, step)
        self.events.add(event, old)
        self._grown = event

    def nonfinite_taken(self, record: StepRecord) -> None:
        """A loss or gradients with inf or NaN, and the step was taken all the same."""
        if record.loss is not None and not math.isfinite(record.loss):
            kind = "nonfinite-loss"
            text = f"step {record.step}: the loss is {number_words(record.loss)}"
            text += f": {began(origin_of(record) or Origin('forward'))}"
        else:
            kind = "nonfinite-gradients"
            tensors = _tensors(record.nonfinite_tensors, self.tensors, record.nonfinite_values)
            text = f"step {record.step}: {tensors}"
            text += _where(record.origin)
        if record.skipped is None:
            text += "; no scaler watches over this step, so the weights take it in"
        old = self._bad
        follows = old is not None and old.kind == kind
        if old is not None and follows and record.step <= (old.last_step or old.step) + 1:
            count = old.count + (record.step > (old.last_step or old.step))
            first = old.text.split("; in all")[0]
            text = first if count == 1 else f"{first}; in all {count:,} steps in a row"
            event = Event(old.step, kind, "error", text, old.tensor, count, record.step)
            self.events.add(event, old)
        else:
            event = Event(record.step, kind, "error", text, record.origin)
            self.events.add(event)
        self._bad = event

    def turned(self, step: int, kind: str, text: str) -> None:
        """A knob has another value from this step on."""
        self.events.add(Event(step, kind, "info", text))
        self._grown = None

    def notice(self, step: int, notice: Notice) -> None:
        if not notice.text or (notice.knob in TOLD_BY_RECORDS and not notice.refused):
            return  # it says which value a knob has now; the next step shows it
        severity = "warning" if notice.refused else "info"
        self.events.add(Event(step, "notice", severity, notice.text))

    def ended(self, end: RunEnd) -> None:
        took = count_words(end.steps, "step")
        if end.status == "failed":
            text = f"the training failed after {took}"
            if end.error:
                text += f": {end.error}"
            self.events.add(Event(max(0, end.steps - 1), "failed", "error", text))
        else:
            kind = "finished" if end.status == "finished" else "stopped"
            self.events.add(Event(max(0, end.steps - 1), kind, "info", f"{kind} after {took}"))


def skip_text(burst: Burst, tensors: int, optimizers: int = 1) -> str:
    """What a run of skipped steps was, why, and what became of the scale."""
    whose = f" for {burst.optimizer}" if optimizers > 1 and burst.optimizer else ""
    if burst.count == 1:
        text = f"step {burst.first} skipped{whose}: "
    else:
        text = f"steps {burst.first} to {burst.last} skipped{whose} ({burst.count:,} in a row): "
    text += _tensors(burst.tensors, tensors, burst.values)
    text += _where(burst.origin)
    origin = burst.began
    if burst.nonfinite_losses:
        if origin is None or origin.where == "backward":
            origin = Origin("forward")  # a later one than the first
        text += f"; the loss itself was {number_words(burst.loss)}: {began(origin)}"
    elif origin is not None:
        text += f"; {began(origin)}"
    if burst.kind == "probe":
        steps = burst.clean_before
        text += "; the scale had "
        text += f"grown {count_words(steps, 'step')} before" if steps else "just grown"
    before, after = burst.scale_before, burst.scale_after
    if before is None or after is None:
        return text
    if after == before:
        return f"{text}; the scale stays at {scale_words(before)}"
    return f"{text}; the scale falls from {scale_words(before)} to {scale_words(after)}"


def _tensors(bad: int | None, tensors: int, values: int | None = None) -> str:
    if not bad:
        return "the gradients held inf or NaN"
    of = f" of {tensors:,}" if tensors >= bad else ""
    noun = "tensor" if bad == 1 and not of else "tensors"
    many = f" ({count_words(values, 'value')})" if values else ""
    return f"{bad:,}{of} gradient {noun} held inf or NaN{many}"


def _where(origin: str | None) -> str:
    return f", first in {origin} (nearest the loss)" if origin else ""
