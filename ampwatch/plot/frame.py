"""What is around a curve: box, ticks and labels, drawn by plotext and kept while they stay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ampwatch.plot import plotext_frame

Ticks = tuple[tuple[int, str], ...]
"""Cells inside the box (from the left, from the top) and their labels."""

NARROWEST_LABEL = 5
"""Plots above each other line up as long as no label is longer."""
LEAST_COLUMNS, LEAST_ROWS = 8, 3
AROUND = 3
"""Rows of a frame that are not inside: the top of the box, its bottom and the step labels."""
STAND_IN: Ticks = ((0, "0"),)
"""Where a part without ticks, or one that is not used, needs some for its width."""
IN_ASCII = str.maketrans("┌┐└┘├┤┬┴┼│─", "+++++++++|-")


@dataclass(frozen=True, slots=True)
class Frame:
    top: str
    left: tuple[str, ...]
    """What stands left of each row inside the box, the edge included."""
    right: str
    bottom: tuple[str, ...]


def label_width(labels: list[str]) -> int:
    return max([NARROWEST_LABEL, *map(len, labels)])


def inside(width: int, height: int, labels: int) -> tuple[int, int]:
    """Columns and rows inside the box, (0, 0) where a frame would leave too little."""
    columns, rows = width - labels - 2, height - AROUND
    return (columns, rows) if columns >= LEAST_COLUMNS and rows >= LEAST_ROWS else (0, 0)


def frame(columns: int, rows: int, x: Ticks, y: Ticks, labels: int, ascii_only: bool) -> Frame:
    """The frame around ``columns`` by ``rows`` cells."""
    # In two parts: the steps move with every window, and four plots share them.
    top, left, right = _sides(columns, rows, y, labels, ascii_only)
    return Frame(top, left, right, _bottom(columns, x, labels, ascii_only))


@lru_cache(maxsize=128)
def _sides(
    columns: int, rows: int, y: Ticks, labels: int, ascii_only: bool
) -> tuple[str, tuple[str, ...], str]:
    built = _built(columns, rows, STAND_IN, y or STAND_IN, labels, ascii_only)
    body, edge = built[1 : rows + 1], labels + 1
    if y:
        left = tuple(row[:edge] for row in body)
    else:
        left = (" " * labels + body[-1][labels:edge],) * rows
    return built[0], left, body[0][edge + columns :]


@lru_cache(maxsize=128)
def _bottom(columns: int, x: Ticks, labels: int, ascii_only: bool) -> tuple[str, ...]:
    edge, words = _built(columns, LEAST_ROWS, x or STAND_IN, STAND_IN, labels, ascii_only)[-2:]
    if not x:
        plain = "-" if ascii_only else "─"
        edge, words = edge[: labels + 1] + plain * columns + edge[-1], " " * len(words)
    return edge, words


def _built(columns: int, rows: int, x: Ticks, y: Ticks, labels: int, ascii_only: bool) -> list[str]:
    # Tick places come as cells, so that box and curve round alike.
    built = plotext_frame.build(
        columns + labels + 2,
        rows + AROUND,
        [(cell / (columns - 1), text) for cell, text in x],
        [((rows - 1 - cell) / (rows - 1), text.rjust(labels)) for cell, text in y],
    )
    return [row.translate(IN_ASCII) for row in built] if ascii_only else built


def forget() -> None:
    """Draw every frame anew from here on."""
    _sides.cache_clear()
    _bottom.cache_clear()
