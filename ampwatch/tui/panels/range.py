"""Where the gradients lie against what a number format can hold, before and after scaling."""

from __future__ import annotations

from typing import ClassVar

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from ampwatch.formats import FORMATS
from ampwatch.run import Run
from ampwatch.run.ranges import fit
from ampwatch.tui.panels import range_words as words
from ampwatch.tui.panels.range_choice import choose, real_headroom
from ampwatch.tui.range_view import RangeView

HELP = """\
How many gradient values lie at each power of two: true ones above, times the scale below.
What lies under / is 0 in this format, · has lost bits, \\ is beyond its largest value.
[ and ] slide the lower band; f: another format; a: activation gradients, the real headroom."""
BESIDE = 112
"""Columns from which the numbers stand beside the picture."""


class Range(Container, can_focus=True):
    """The picture, its caption and the figures."""

    HELP = HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "f",
            "next_format",
            "Format",
            tooltip="Against fp16, bf16, fp8 e4m3 or fp8 e5m2",
            id="range.format",
        ),
        Binding(
            "a",
            "other_gradients",
            "Activations",
            tooltip="Gradients between modules, or those of parameters",
            id="range.flow",
        ),
        Binding(
            "escape", "whole", "Whole", show=False, tooltip="From one tensor back to all",
            id="range.whole",
        ),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__(id="range", classes="-waiting")
        self.view = RangeView()
        self.form = FORMATS[0]
        self.tensor: str | None = None
        """The parameter that was chosen; None for the whole model."""
        self.flowing = False
        """Activation gradients in place of those of parameters."""
        self._run: Run | None = None
        self._shown: object = None
        self._caption = Static(id="range-caption", markup=False)
        self._waits = Static(words.NOTHING, id="range-waiting", markup=False)
        self._numbers = Static(id="range-numbers", markup=False)
        self._notes = Static(id="range-notes", markup=False)

    def compose(self) -> ComposeResult:
        yield self._caption
        yield self._waits
        with Container(id="range-body"):
            yield self.view
            with Container(id="range-figures"):
                yield self._numbers
                yield self._notes

    def sync(self, run: Run) -> None:
        """Show the latest detail step with the scale as it is now."""
        self._run = run
        shown = choose(run, self.tensor, self.flowing)
        scale = run.last.scale if run.last is not None else None
        form = self.form
        real = real_headroom(run, form, scale) if self.tensor is None else None
        state = (shown, scale, form, real, self.size, self.flowing)
        if state == self._shown:
            return
        self._shown = state
        self.set_class(shown is None, "-waiting")
        if shown is None:
            self._caption.update("")
            self._waits.update(self._why_not(run))
            return
        spread = shown.spread
        told = fit(spread, form, scale)
        width = self.size.width
        self.set_class(width >= BESIDE, "-beside")
        self._caption.update(words.caption(shown, form, width))
        self.view.show(words.range_spec(spread, form, scale))
        rows = words.numbers(spread, told, form, words.headroom_of(shown, told, real))
        columns = 1 if width >= BESIDE or width < 2 * words.COLUMN else 2
        self._numbers.update(words.laid_out(rows, columns))
        notes = [
            shown.hidden,
            words.looked_at(spread),
            words.moved(shown.scale, scale),
            words.about_headroom(shown, told, real),
        ]
        self._notes.update(Content(" ".join(filter(None, notes))))

    def choose(self, tensor: str | None) -> None:
        """One parameter's gradient, or the whole model's."""
        self.tensor = tensor
        if self._run is not None:
            self.sync(self._run)

    def action_next_format(self) -> None:
        self.form = FORMATS[(FORMATS.index(self.form) + 1) % len(FORMATS)]
        if self._run is not None:
            self.sync(self._run)

    def action_other_gradients(self) -> None:
        self.flowing = not self.flowing
        if self._run is not None:
            self.sync(self._run)

    def action_whole(self) -> None:
        if self.tensor is None:
            raise SkipAction  # then escape is about the tab
        self.choose(None)

    def on_resize(self) -> None:
        if self._run is not None:
            self.sync(self._run)

    def _why_not(self, run: Run) -> str:
        if self.flowing:
            return words.NO_FLOW if run.activations is None else words.NO_OUTPUT
        if run.tensors is None:
            return words.NOTHING
        return words.GONE if run.tensors.exponents else words.NOT_RECORDED
