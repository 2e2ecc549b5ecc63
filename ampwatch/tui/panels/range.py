"""Where the gradients lie against what a number format can hold, before and after scaling."""

from __future__ import annotations

from typing import ClassVar

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from ampwatch.formats import FORMATS, Format
from ampwatch.plot.range_picture import Band, RangeSpec
from ampwatch.record import TensorStats
from ampwatch.run import Run
from ampwatch.run.ranges import Fit, Spread, doublings_of, fit, spread_of
from ampwatch.tui.figures import MINUS, percent, power_of_two
from ampwatch.tui.foreign import shorten
from ampwatch.tui.range_view import RangeView

HELP = """\
How many gradient values lie at each power of two: true ones above, times the scale below.
What lies under / is 0 in this format, · has lost bits, \\ is beyond its largest value.
[ and ] slide the lower band; f shows another format; enter on Tensors chooses one tensor."""
NOTHING = (
    "No gradient has been measured yet. The first detail step comes within the first steps; "
    "later ones are spaced out to keep the overhead low."
)
NOT_RECORDED = "This run was recorded without the exponents of its gradients."
GONE = "The latest detail step has no gradient of this parameter. Press esc for the whole model."
UPPER_BOUNDS = "Activation gradients can be larger than these."
BESIDE = 112
"""Columns from which the numbers stand beside the picture."""
COLUMN = 38
"""Cells of one column of numbers."""


def chosen_stats(run: Run, tensor: str | None) -> tuple[TensorStats | None, Spread | None, str]:
    """The detail step to show, what it holds, and what to say of a later one that is not shown."""
    latest = run.tensors
    spread = None if latest is None else spread_of(latest, tensor)
    if latest is None or spread is None or spread.nonfinite <= spread.usual:
        return latest, spread, ""
    before = run.finite_tensors
    earlier = None if before is None else spread_of(before, tensor)
    if before is None or earlier is None:
        return latest, spread, ""
    return before, earlier, f"At step {latest.step:,} inf and NaN hide the values."


def range_spec(spread: Spread, form: Format, scale: float | None) -> RangeSpec:
    """Both bands: true magnitudes, and those times the scale."""
    first, counts = spread.first, spread.counts
    if scale is None or scale == 1:
        label = "no loss scaling: as above"
    else:
        label = f"scaled: × {power_of_two(scale)}"
    scaled = Band(label, first + doublings_of(scale), counts)
    return RangeSpec(Band("true values", first, counts), scaled, form)


def caption(stats: TensorStats, spread: Spread, name: str | None, form: Format, width: int) -> str:
    """Which gradients, of which step, against which format."""
    tail = f" · step {stats.step:,} · {form.name} (f: next)"
    if name is None:
        return f"parameter gradients of the whole model ({spread.tensors:,}){tail}"
    return f"{shorten(name, max(width - len(tail) - 22, 8))} (esc: whole model){tail}"


def moved(stats: TensorStats, scale: float | None) -> str:
    """What to know about the scale of the lower band."""
    then = stats.scale
    if then == scale or None in (then, scale):
        return ""
    return f"Measured at scale {power_of_two(then)}, drawn at the scale now, {power_of_two(scale)}."


def looked_at(spread: Spread) -> str:
    """How much of the gradients was looked at."""
    if spread.seen < spread.size:
        share = percent(spread.seen / spread.size)
        return (
            f"A sample: {spread.seen:,} of {spread.size:,} values ({share}); the largest is exact."
        )
    return f"All {spread.size:,} values were looked at."


def numbers(spread: Spread, told: Fit, form: Format) -> list[tuple[str, str]]:
    """The figures beside the picture: what each is, and its value."""
    rows = [
        ("becomes 0 now", percent(told.flushed)),
        ("becomes 0 without scaling", percent(told.flushed_unscaled)),
        ("subnormal now (bits lost)", percent(told.subnormal)),
        (f"beyond {form.largest:.6g} now", percent(told.overflowing)),
        ("headroom, at most", headroom_words(spread, told)),
        ("scales that lose nothing", scales_words(spread, told)),
    ]
    whole = spread.zeros + spread.usual + spread.nonfinite
    rows.append(("0 already", percent(spread.zeros / whole) if whole else "–"))
    rows.append(("inf or NaN", f"{spread.nonfinite:,}" if spread.nonfinite else "none"))
    return rows


def headroom_words(spread: Spread, told: Fit) -> str:
    if spread.nonfinite:
        return "none: inf or NaN"
    if told.headroom is None:
        return "–"
    return f"{told.headroom:.1f} doublings".replace("-", MINUS)


def scales_words(spread: Spread, told: Fit) -> str:
    if spread.nonfinite:
        return "unknown"
    if told.lowest is None or told.highest is None:
        return "–"
    if not told.lossless:
        return "none"
    if told.lowest == told.highest:
        return f"2^{told.lowest}".replace("-", MINUS)
    return f"2^{told.lowest} … 2^{told.highest}".replace("-", MINUS)


def laid_out(rows: list[tuple[str, str]], columns: int) -> Content:
    """The figures in one column or in two, read downwards."""
    height = -(-len(rows) // columns)
    lines = []
    for line in range(height):
        parts: list[Content] = []
        for label, value in rows[line::height]:
            gap = " " * max(COLUMN - len(label) - len(value) - 2, 1)
            parts.append(Content.assemble((label, "$foreground-muted"), gap, (value, "bold"), "  "))
        lines.append(Content("").join(parts))
    return Content("\n").join(lines)


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
        self._run: Run | None = None
        self._shown: object = None
        self._caption = Static(id="range-caption", markup=False)
        self._waits = Static(NOTHING, id="range-waiting", markup=False)
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
        stats, spread, hidden = chosen_stats(run, self.tensor)
        scale = run.last.scale if run.last is not None else None
        shown = (id(stats), scale, self.form, self.tensor, self.size)
        if shown == self._shown:
            return
        self._shown = shown
        self.set_class(spread is None, "-waiting")
        if stats is None or spread is None:
            self._caption.update("")
            self._waits.update(self._why_not(run))
            return
        told = fit(spread, self.form, scale)
        width = self.size.width
        self.set_class(width >= BESIDE, "-beside")
        self._caption.update(caption(stats, spread, self.tensor, self.form, width))
        self.view.show(range_spec(spread, self.form, scale))
        rows = numbers(spread, told, self.form)
        self._numbers.update(laid_out(rows, 1 if width >= BESIDE or width < 2 * COLUMN else 2))
        notes = [hidden, looked_at(spread), moved(stats, scale), UPPER_BOUNDS]
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

    def action_whole(self) -> None:
        if self.tensor is None:
            raise SkipAction  # then escape is about the tab
        self.choose(None)

    def on_resize(self) -> None:
        if self._run is not None:
            self.sync(self._run)

    def _why_not(self, run: Run) -> str:
        if run.tensors is None:
            return NOTHING
        return GONE if run.tensors.exponents else NOT_RECORDED
