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


@lru_cache(maxsize=128)
def frame(columns: int, rows: int, x: Ticks, y: Ticks, labels: int, ascii_only: bool) -> Frame:
    """The frame around ``columns`` by ``rows`` cells."""
    # Tick places come as cells, so that box and curve round alike. Without ticks a stand-in holds
    # the width, and is wiped.
    built = plotext_frame.build(
        columns + labels + 2,
        rows + AROUND,
        [(cell / (columns - 1), text) for cell, text in x or STAND_IN],
        [((rows - 1 - cell) / (rows - 1), text.rjust(labels)) for cell, text in y or STAND_IN],
    )
    edge = labels + 1
    if not x:
        built[-2:] = [built[-2].replace("┬", "─"), " " * len(built[-1])]
    if not y:
        built[1 : rows + 1] = [" " * labels + "│" + row[edge:] for row in built[1 : rows + 1]]
    if ascii_only:
        built = [row.translate(IN_ASCII) for row in built]
    body = built[1 : rows + 1]
    return Frame(
        top=built[0],
        left=tuple(row[:edge] for row in body),
        right=body[0][edge + columns :],
        bottom=tuple(built[rows + 1 :]),
    )
