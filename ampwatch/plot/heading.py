"""The first row of a plot: title, latest value, legend; the top of the box fills what is left."""

from __future__ import annotations

from rich.cells import cell_len

from ampwatch.plot.signs import signs
from ampwatch.plot.spec import CURVE_STYLES, PlotSpec, Row, Segment
from ampwatch.plot.text import cut, pad, plain

LONGEST_NAME = 20
SAMPLES = ("⠒⠒⠒", "⠒ ⠒", "⠂⠂⠂", "⠒⠒ ", "⠒  ")
"""How each curve is dashed, as the legend shows it; ``raster`` keeps the same dot columns."""
ASCII_SAMPLES = ("---", "+++", "xxx", "ooo", "***")


def heading(spec: PlotSpec, width: int, top: str, ascii_only: bool) -> Row:
    """Exactly ``width`` cells; what the words leave free shows ``top``, the edge of the box."""
    title, value = plain(spec.title, ascii_only), plain(spec.value, ascii_only)
    room = width - cell_len(title) - 2
    if cell_len(value) > room:
        # The value is what changes: it keeps up to two thirds, then the title is cut.
        room = max(room, width * 2 // 3 - 2)
        value = cut(value, room, ascii_only)
        title = cut(title, width - (cell_len(value) + 2 if value else 0), ascii_only)
    words = title + value
    segments: list[Segment] = [(title, "title")]
    used = cell_len(title)
    if value:
        segments.append(("  " + value, "value"))
        used += 2 + cell_len(value)
    if words and used < width:
        segments.append((" ", "frame"))
        used += 1
    entries = legend(spec, ascii_only)
    wide = sum(cell_len(text) for text, _ in entries) + 1
    if entries and used + wide + 3 <= width:
        segments += [(top[used : width - wide - 2], "frame"), *entries, (" ", "frame")]
        segments.append((top[width - 2 :], "frame"))
    elif used < width:
        segments.append((top[used:width], "frame"))
    row = tuple((text, style) for text, style in segments if text)
    if sum(cell_len(text) for text, _ in row) == width:
        return row
    return ((pad("".join(text for text, _ in row), width, ascii_only), "title"),)


def legend(spec: PlotSpec, ascii_only: bool) -> list[Segment]:
    """The sample and the name of each curve and line; of a single curve none."""
    entries: list[Segment] = []
    if len(spec.curves) > 1:
        samples = ASCII_SAMPLES if ascii_only else SAMPLES
        for number, curve in enumerate(spec.curves):
            kind = number % len(samples)
            entries.append(
                (f" {samples[kind]} {_name(curve.name, ascii_only)}", CURVE_STYLES[kind])
            )
    sample = signs(ascii_only).line * 3
    entries += [
        (f" {sample} {_name(words, ascii_only)}", "line") for _, words in spec.lines if words
    ]
    return entries


def _name(text: str, ascii_only: bool) -> str:
    return cut(plain(text, ascii_only), LONGEST_NAME, ascii_only)
