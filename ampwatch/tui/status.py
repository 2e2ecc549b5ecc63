"""The two status lines: what runs, how, how far, and how its numbers fare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.widget import Widget

from ampwatch import controls
from ampwatch.controls import Controls
from ampwatch.run import Run
from ampwatch.tui.figures import figure, gain, percent, power_of_two, share
from ampwatch.tui.foreign import plain, shorten

LABEL, VALUE = "$foreground-muted", "$foreground"
STATES = {
    "starting": ("STARTING", "reverse $text-accent"),
    "running": ("RUNNING", "reverse $text-success"),
    "paused": ("PAUSED", "bold reverse $text-warning"),
    "stopping": ("STOPPING", "bold reverse $text-warning"),
    "finished": ("FINISHED", "reverse $text-primary"),
    "failed": ("FAILED", "bold reverse $text-error"),
    "stopped": ("STOPPED", "reverse $text-warning"),
    "following": ("FOLLOWING", "reverse $text-accent"),
    "reading": ("READING", "reverse $text-accent"),
    "unfinished": ("NO END", "reverse $text-warning"),
}
MOST_METRICS = 4
GAP = 2


@dataclass(frozen=True, slots=True)
class Field:
    """One figure of the status lines; where room is short those with the lowest rank go first."""

    rank: int
    label: str
    value: str
    style: str = VALUE
    short: str | None = None
    """The label where room is short."""

    def text(self, short: bool) -> Content:
        label = self.short if short and self.short is not None else self.label
        if not label:
            return Content.styled(self.value, self.style)
        return Content.assemble((f"{label} ", LABEL), (self.value, self.style))


def fitted(fields: Sequence[Field], width: int) -> Content:
    """The fields in their order on one line: shortened, and then fewer, until there is room."""
    kept = list(fields)
    line = _joined(kept, short=False)
    if line.cell_length <= width:
        return line
    line = _joined(kept, short=True)
    while len(kept) > 1 and line.cell_length > width:
        kept.remove(min(kept, key=lambda each: each.rank))
        line = _joined(kept, short=True)
    return line


def _joined(fields: Sequence[Field], short: bool) -> Content:
    return Content(" " * GAP).join([each.text(short) for each in fields])


def state_of(
    run: Run,
    panel: Controls,
    job_state: str | None,
    follow: bool = False,
    reading: bool = False,
) -> str:
    """The one word for how the run is doing.

    A recording (``job_state`` is None) may be ``reading`` still, or may be ``follow``ed.
    """
    if job_state is None:
        if reading:
            return "reading"
        if run.end is not None:
            return run.end.status
        return "following" if follow else "unfinished"
    if job_state == "running" and panel.value(controls.PAUSE):
        return "paused"
    return job_state


def upper_line(run: Run, panel: Controls, state: str, name: str) -> list[Field]:
    """Who and how: state, name, device, dtype, scaler, steps, speed."""
    word, style = STATES.get(state, (plain(state).upper(), "reverse"))
    fields = [Field(100, "", f" {word} ", style)]
    if name:
        fields.append(Field(50, "", shorten(name, 28), "bold"))
    info, last = run.info, run.last
    if info is not None and info.device:
        fields.append(Field(20, "", shorten(info.device, 16)))
    if info is not None and info.world_size > 1:
        fields.append(Field(15, "ranks", f"{info.world_size}"))
    if last is not None:
        if last.dtype is not None:
            fields.append(Field(60, "", _asked(panel, controls.DTYPE.name, last.dtype)))
        if last.scaler is not None:
            asked = _asked(panel, controls.SCALER.name, last.scaler)
            fields.append(Field(55, "scaler", asked, short=""))
    if run.steps:
        total = info.total_steps if info is not None else None
        of = f"{run.steps:,}/{total:,}" if total else f"{run.steps:,}"
        fields.append(Field(80, "step", of))
    rate = run.steps_per_second()
    if rate is not None and state in ("running", "following"):
        fields.append(Field(30, "", f"{figure(rate)} steps/s"))
    return fields


def _asked(panel: Controls, knob: str, now: str) -> str:
    """A choice in force, with the one asked for where no step has been taken with it yet."""
    asked = panel.values.get(knob)
    if isinstance(asked, str) and asked != now:
        return f"{plain(now)}→{plain(asked)}"
    return plain(now)


def lower_line(run: Run, panel: Controls) -> list[Field]:
    """How the numbers fare: scale, skipped steps, next growth, overhead, gains, metrics."""
    fields: list[Field] = []
    last = run.last
    if last is None:
        return fields
    if last.scale is not None:
        fields.append(Field(90, "scale", power_of_two(last.scale), "bold"))
        style = "bold $text-warning" if run.skipped else VALUE
        skipped = f"{run.skipped:,} ({share(run.skipped, run.steps)})"
        fields.append(Field(80, "skipped", skipped, style, "skips"))
        growth = run.steps_until_growth()
        if growth is not None:
            fields.append(Field(40, "grows in", f"{growth:,}", short="grows"))
    for knob, word in ((controls.TARGET_GAIN, "targets"), (controls.LOSS_GAIN, "loss gain")):
        if panel.value(knob) != knob.neutral:
            fields.append(Field(70, word, gain(panel.value(knob)), "bold $text-warning"))
    overhead = run.overhead()
    if overhead is None:
        overhead = last.overhead
    if overhead is not None:
        fields.append(Field(30, "overhead", percent(overhead)))
    for name, value in list(last.metrics.items())[:MOST_METRICS]:
        fields.append(Field(20, shorten(name, 16), figure(value)))
    if last.lr is not None:
        fields.append(Field(10, "lr", figure(last.lr)))
    return fields


class StatusLines(Widget):
    """Shows the status of the run; drawn anew only when a word of it has changed."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self._lines: tuple[list[Field], list[Field]] = ([], [])
        self._note = ""

    def show(self, upper: list[Field], lower: list[Field], note: str = "") -> None:
        """``note`` takes the place of the lower line: what a stop is waiting for."""
        if (upper, lower) != self._lines or note != self._note:
            self._lines, self._note = (upper, lower), note
            self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        upper, lower = self._lines
        second = (
            Content.styled(plain(self._note), "bold $text-warning")
            if self._note
            else fitted(lower, width)
        )
        return Content("\n").join([fitted(upper, width), second])
