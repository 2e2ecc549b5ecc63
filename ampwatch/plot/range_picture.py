"""Draws magnitudes over the powers of two against what a number format can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ampwatch.formats import Format
from ampwatch.plot.spec import Picture, Row
from ampwatch.plot.text import cut, pad, plain

Heights: TypeAlias = npt.NDArray[np.float64]

FIRST_POWER, LAST_POWER = -32, 24
"""Always in view, for fp16 and both fp8 formats to be compared on one axis."""
ROUND = 8
"""The window grows by so many powers at a time, so that it stands still while a band slides."""
MARGIN = 1
FEWEST_ROWS = 7
FEWEST_COLUMNS = 24
TICK = 8
"""Powers between two ticks, or a multiple of it where they would not fit."""
TICK_WIDTH = 8
"""Cells that a tick and its words want."""
ZONES = ("zero", "subnormal", "normal", "overflow")
INKS = ("true", "scaled", "lost", "fill", "label")
"""Of what stands in a zone: a style key is an ink, a blank, and the zone."""
PLAIN = ("label", "frame", "axis", "empty")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Signs that differ in shape, so that nothing is told by colour alone."""

    bars: tuple[str, str]
    """For either band, from the lowest part of a cell to a full one."""
    fill: dict[str, str]
    left: str
    right: str
    line: str
    tick: str


UNICODE = Glyphs(
    ("⣀⣤⣶⣿", "▁▂▃▄▅▆▇█"),
    {"zero": "╱", "subnormal": "·", "normal": " ", "overflow": "╲"},
    "◀",
    "▶",
    "─",
    "┴",
)
ASCII = Glyphs(
    (".:", "=#"),
    {"zero": "/", "subnormal": ".", "normal": " ", "overflow": "\\"},
    "<",
    ">",
    "-",
    "+",
)


@dataclass(frozen=True, slots=True)
class Band:
    """One histogram: ``counts[k]`` values from 2^(first + k) up to 2^(first + k + 1)."""

    label: str
    first: float
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RangeSpec:
    true: Band
    scaled: Band
    form: Format
    empty: str = "no value but 0, inf and NaN"


def draw_range(spec: RangeSpec, width: int, height: int, *, ascii_only: bool = False) -> Picture:
    """Both bands, one above the other, on one axis; exactly ``width`` by ``height`` cells."""
    if width < FEWEST_COLUMNS or height < FEWEST_ROWS:
        words = pad("too small to draw", max(width, 0), ascii_only)
        rows: list[Row] = [((words, "empty"),)] * min(height, 1)
        return _picture(rows, width, height)
    glyphs = ASCII if ascii_only else UNICODE
    axis = Axis.over((spec.true, spec.scaled), width)
    zones = [zone(spec.form, axis.middle(column)) for column in range(width)]
    room = height - 5
    upper = room // 2
    rows = [
        _zone_names(spec.form, zones, glyphs, ascii_only),
        *_band(spec.true, "true", axis, zones, upper, glyphs, ascii_only),
        *_band(spec.scaled, "scaled", axis, zones, room - upper, glyphs, ascii_only),
        *_ticks(axis, glyphs),
    ]
    if not spec.true.counts:
        words = cut(plain(f" {spec.empty} ", ascii_only), width, ascii_only)
        rows[2] = ((words, "empty"), *_fill(zones[len(words) :], glyphs))
    return _picture(rows, width, height)


@dataclass(frozen=True, slots=True)
class Axis:
    """Which power of two each column begins with."""

    first: float
    per_column: float
    """Powers of two a column; a whole number of them, or a whole number of columns to one."""
    width: int

    @classmethod
    def over(cls, bands: Sequence[Band], width: int) -> Axis:
        filled = [band for band in bands if band.counts]
        low = min([FIRST_POWER, *(band.first - MARGIN for band in filled)])
        high = max([LAST_POWER, *(band.first + len(band.counts) + MARGIN for band in filled)])
        first = math.floor(low / ROUND) * ROUND
        powers = math.ceil(high / ROUND) * ROUND - first
        per_column = 1 / (width // powers) if powers <= width else math.ceil(powers / width)
        spare = math.floor(width * per_column) - powers
        return cls(first - spare // 2, per_column, width)

    def middle(self, column: int) -> float:
        return self.first + (column + 0.5) * self.per_column

    def column(self, power: float) -> int:
        return math.floor((power - self.first) / self.per_column)

    def heights(self, band: Band) -> Heights:
        """How much of the band lies in each column, its highest column being 1."""
        if not band.counts:
            return np.zeros(self.width)
        edges = band.first + np.arange(len(band.counts) + 1)
        sums = np.concatenate([[0.0], np.cumsum(band.counts)])
        columns = self.first + np.arange(self.width + 1) * self.per_column
        shares = np.diff(np.interp(columns, edges, sums))
        shares[shares < sums[-1] * 1e-12] = 0.0  # what rounding leaves in empty columns
        highest = float(shares.max())
        return np.asarray(shares / highest if highest > 0 else shares, dtype=np.float64)


def zone(form: Format, power: float) -> str:
    """What becomes of a value of this power of two."""
    if power < form.flushed:
        return "zero"
    if power < form.normal:
        return "subnormal"
    return "normal" if power < math.log2(form.largest) else "overflow"


def _band(
    band: Band,
    ink: str,
    axis: Axis,
    zones: list[str],
    rows: int,
    glyphs: Glyphs,
    ascii_only: bool,
) -> list[Row]:
    """Its label, and as many rows of bars; the smallest share still shows as the lowest part."""
    sign = glyphs.bars[INKS.index(ink)]
    name = band.label.replace("×", "x") if ascii_only else band.label
    label = cut(plain(f" {sign[-1]} {name} ", ascii_only), axis.width, ascii_only)
    head: Row = ((label, "label"), *_fill(zones[len(label) :], glyphs))
    heights = axis.heights(band)
    parts = np.where(heights > 0, np.maximum(np.rint(heights * rows * len(sign)), 1), 0).astype(int)
    drawn = [head]
    for row in range(rows - 1, -1, -1):
        cells = []
        for part, where in zip(parts.tolist(), zones, strict=True):
            here = min(part - row * len(sign), len(sign))
            if here > 0:
                gone = where in ("zero", "overflow")
                cells.append((sign[here - 1], f"{'lost' if gone else ink} {where}"))
            else:
                cells.append((glyphs.fill[where], f"fill {where}"))
        drawn.append(_runs(cells))
    return drawn


def _fill(zones: list[str], glyphs: Glyphs) -> Row:
    return _runs([(glyphs.fill[where], f"fill {where}") for where in zones])


def _zone_names(form: Format, zones: list[str], glyphs: Glyphs, ascii_only: bool) -> Row:
    """The zones by name, each over its columns; those out of view are pointed at."""
    words = {
        "zero": "becomes 0",
        "subnormal": "subnormal",
        "normal": "normal",
        "overflow": f"beyond {form.largest:g}",
    }
    row: list[tuple[str, str]] = []
    for name, group in groupby(zones):
        room = len(list(group))
        text = words[name]
        if len(text) + 2 > room:
            text = {"subnormal": "sub", "zero": "0", "overflow": "over"}.get(name, text)
        row.append((cut(text, room, ascii_only).center(room), f"label {name}"))
    text, style = row[0]
    far = f"{glyphs.left} becomes 0 below 2^{form.flushed} "
    if zones[0] != "zero" and not text[: len(far)].strip():
        row[0] = (far + text[len(far) :], style)
    text, style = row[-1]
    far = f" beyond 2^{math.ceil(math.log2(form.largest))} {glyphs.right}"
    if zones[-1] != "overflow" and not text[-len(far) :].strip():
        row[-1] = (text[: -len(far)] + far, style)
    return tuple(row)


def _ticks(axis: Axis, glyphs: Glyphs) -> list[Row]:
    """The line under both bands, and the powers of two below it."""
    line = [glyphs.line] * axis.width
    words = [" "] * axis.width
    step = TICK
    while step / axis.per_column < TICK_WIDTH:
        step += TICK
    power = math.ceil(axis.first / step) * step
    while (column := axis.column(power)) < axis.width:
        line[column] = glyphs.tick
        text = f"2^{power}"
        if column + len(text) <= axis.width:
            words[column : column + len(text)] = text
        power += step
    return [(("".join(line), "axis"),), (("".join(words), "axis"),)]


def _runs(cells: list[tuple[str, str]]) -> Row:
    """Neighbours of one style in one piece."""
    return tuple(
        ("".join(sign for sign, _ in group), style)
        for style, group in ((key, list(each)) for key, each in groupby(cells, lambda c: c[1]))
    )


def _picture(rows: list[Row], width: int, height: int) -> Picture:
    blank: Row = ((" " * max(width, 0), "frame"),)
    return Picture(width, height, (*rows, *[blank] * (height - len(rows)))[: max(height, 0)])
