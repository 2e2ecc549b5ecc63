"""The layout for a projector: the scale and the skipped steps in large digits, few words, plots in
thick lines, high contrast.

A terminal has one size of letters: large means more cells.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Digits, Static

from ampwatch import controls
from ampwatch.controls import Controls
from ampwatch.run import Run
from ampwatch.tui.figures import MINUS, figure, gain, power_of_two
from ampwatch.tui.foreign import plain, shorten
from ampwatch.tui.panels.panel import curves
from ampwatch.tui.status import STATES

MODE_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Told:
    """What stands at the top."""

    scale: str
    skipped: str
    loss: str
    state: str
    step: str
    modes: tuple[str, ...]
    note: str = ""


def told(run: Run, panel: Controls, state: str, note: str) -> Told:
    """The few figures that are worth large digits."""
    last = run.last
    scale = power_of_two(last.scale) if last is not None and last.scale is not None else "–"
    losses = curves(run, "loss")  # of several optimizers always the same one's
    loss = figure(losses[0].history.last) if losses else "–"
    modes: list[str] = []
    if last is not None:
        modes = [last.dtype or "", f"scaler {last.scaler}" if last.scaler else "no scaler"]
        gains = [
            f"{word} {gain(panel.value(knob))}"
            for knob, word in ((controls.TARGET_GAIN, "targets"), (controls.LOSS_GAIN, "loss"))
            if panel.value(knob) != knob.neutral
        ]
        modes.append("  ".join(gains))
    return Told(
        _digits(scale),
        str(run.skipped),
        _digits(loss),
        state,
        f"step {run.steps:,}" if run.steps else "",
        tuple(modes),
        note,
    )


def _digits(text: str) -> str:
    """As the large digits have it: they know no true minus sign."""
    return text.replace(MINUS, "-")


class Card(Vertical):
    """One figure in large digits under its name."""

    def __init__(self, name: str, label: str) -> None:
        super().__init__(id=f"big-{name}", classes="card")
        self._label = label
        self._digits = Digits("")

    def compose(self) -> ComposeResult:
        yield Static(self._label, classes="big-label", markup=False)
        yield self._digits

    def show(self, value: str, alarming: bool = False) -> None:
        if value != self._digits.value:
            self._digits.update(value)
        self.set_class(alarming, "-alarming")


class BigStatus(Horizontal):
    """Takes the place of the tabs and the status lines."""

    def __init__(self) -> None:
        super().__init__(id="big")
        self.scale = Card("scale", "loss scale")
        self.skipped = Card("skipped", "skipped steps")
        self.loss = Card("loss", "loss")
        self.mode = Static(id="big-mode", markup=False)
        self._shown: Told | None = None

    def compose(self) -> ComposeResult:
        yield self.scale
        yield self.skipped
        yield self.loss
        yield self.mode

    def show(self, shown: Told) -> None:
        if shown == self._shown:
            return
        self._shown = shown
        self.scale.show(shown.scale)
        self.skipped.show(shown.skipped, alarming=shown.skipped != "0")
        self.loss.show(shown.loss)
        word, style = STATES.get(shown.state, (plain(shown.state).upper(), "reverse"))
        lines = [Content.assemble(f"{shown.step}  ", (f" {word} ", style))]
        if shown.note:
            lines.append(Content.styled(plain(shown.note), "bold $text-warning"))
        else:
            lines += [Content(shorten(each, MODE_WIDTH)) for each in shown.modes]
        self.mode.update(Content("\n").join(lines))
