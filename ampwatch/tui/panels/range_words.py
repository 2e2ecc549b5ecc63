"""What the Range tab says beside its picture."""

from __future__ import annotations

from textual.content import Content

from ampwatch.formats import Format
from ampwatch.plot.range_picture import Band, RangeSpec
from ampwatch.run.ranges import Fit, Spread, doublings_of
from ampwatch.tui.figures import MINUS, percent, power_of_two
from ampwatch.tui.foreign import shorten
from ampwatch.tui.panels.range_choice import Shown

NOTHING = (
    "No gradient has been measured yet. The first detail step comes within the first steps; "
    "later ones are spaced out to keep the overhead low."
)
NOT_RECORDED = "This run was recorded without the exponents of its gradients."
GONE = "The latest detail step has no gradient of this parameter. Press esc for the whole model."
UPPER_BOUNDS = "Activation gradients (a) can be larger than these."
NO_FLOW = (
    "No activation gradients have been seen yet: they come with detail steps. Inside a compiled or "
    "a re-entrantly checkpointed model they cannot be seen. Press a for parameter gradients."
)
NO_OUTPUT = (
    "The latest detail step has no output of this module. Press esc for the whole model, "
    "a for parameter gradients."
)
COLUMN = 38
"""Cells of one column of numbers."""


def range_spec(spread: Spread, form: Format, scale: float | None) -> RangeSpec:
    """Both bands: true magnitudes, and those times the scale."""
    first, counts = spread.first, spread.counts
    if scale is None or scale == 1:
        label = "no loss scaling: as above"
    else:
        label = f"scaled: × {power_of_two(scale)}"
    scaled = Band(label, first + doublings_of(scale), counts)
    return RangeSpec(Band("true values", first, counts), scaled, form)


def caption(shown: Shown, form: Format, width: int) -> str:
    """Which gradients, of which step, against which format."""
    tail = f" · step {shown.step:,} · {form.name} (f: next)"
    if shown.name is not None:
        kind = "" if shown.dtype is None else "output of "
        dtype = "" if shown.dtype is None else f" in {shown.dtype}"
        name = shorten(shown.name or "the model", max(width - len(tail + kind + dtype) - 22, 8))
        return f"{kind}{name}{dtype} (esc: whole model){tail}"
    kind = "parameter gradients" if shown.dtype is None else f"{shown.dtype} activation gradients"
    whole = f"{kind} of the whole model ({shown.spread.tensors:,}){tail}"
    return whole if len(whole) <= width else f"{kind} ({shown.spread.tensors:,}){tail}"


def moved(then: float | None, scale: float | None) -> str:
    """What to know about the scale of the lower band; ``then``: at the detail step."""
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


def headroom_of(shown: Shown, told: Fit, real: float | None) -> tuple[str, float | None]:
    """What the headroom is to be called, and how many doublings it is.

    Args:
        real: of all gradients of the whole model, where both kinds are known.
    """
    if shown.dtype is None:
        return "headroom, at most", told.headroom
    if real is None or shown.spread.nonfinite:
        return "headroom of these", told.headroom
    return "headroom, real", real


def numbers(
    spread: Spread, told: Fit, form: Format, headroom: tuple[str, float | None]
) -> list[tuple[str, str]]:
    """The figures beside the picture: what each is, and its value."""
    label, doublings = headroom
    rows = [
        ("becomes 0 now", percent(told.flushed)),
        ("becomes 0 without scaling", percent(told.flushed_unscaled)),
        ("subnormal now (bits lost)", percent(told.subnormal)),
        (f"beyond {form.largest:.6g} now", percent(told.overflowing)),
        (label, headroom_words(spread, doublings)),
        ("scales that lose nothing", scales_words(spread, told)),
    ]
    whole = spread.zeros + spread.usual + spread.nonfinite
    rows.append(("0 already", percent(spread.zeros / whole) if whole else "–"))
    rows.append(("inf or NaN", f"{spread.nonfinite:,}" if spread.nonfinite else "none"))
    return rows


def headroom_words(spread: Spread, headroom: float | None) -> str:
    if spread.nonfinite:
        return "none: inf or NaN"
    if headroom is None:
        return "–"
    return f"{headroom:.1f} doublings".replace("-", MINUS)


def about_headroom(shown: Shown, told: Fit, real: float | None) -> str:
    """Whose headroom the figure is, and where the other gradients are seen."""
    if shown.dtype is None:
        if real is None:
            return UPPER_BOUNDS
        return f"With activation gradients (a) the headroom is {real:.1f} doublings.".replace(
            "-", MINUS
        )
    if real is not None and told.headroom is not None and real < told.headroom:
        return "A parameter gradient (a) is larger than these: the headroom is its own."
    return "Backward computes these on the way: they decide how far the scale can grow."


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
