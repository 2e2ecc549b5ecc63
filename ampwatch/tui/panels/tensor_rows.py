"""The rows and columns of the table of tensors, and what counts as trouble in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rich.cells import set_cell_size

from ampwatch.record import TensorStats
from ampwatch.rules.telling import TROUBLING
from ampwatch.tui.figures import figure, percent
from ampwatch.tui.foreign import shorten

FIGURE_WIDTH = 9
GAP = 2
LEAD = 2
"""Cells before a name: the bar of the chosen one, and the sign of what a finding names."""
NAME_WIDTH = 12
"""Fewest cells for a name."""


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter's figures."""

    place: int
    """Its place in backward order: nearest the loss first."""
    name: str
    norm: float
    max: float
    zeros: float | None
    """Share of its elements that are 0, or None where its size is not known."""
    nonfinite: int
    named: str = ""
    """The severity of a finding about it: "error", "warning" or none."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its head, its cell, and the order it gives."""

    head: str
    cell: Callable[[Row], str]
    order: Callable[[Row], object]
    falling: bool = True
    """Whether the largest comes first when the order is chosen."""


def rows_of(stats: TensorStats, named: Mapping[str, str] = MappingProxyType({})) -> list[Row]:
    sizes = stats.size or (0,) * len(stats.name)
    figures = zip(
        stats.name, stats.norm, stats.max, stats.zeros, stats.nonfinite, sizes, strict=True
    )
    return [
        Row(place, name, norm, largest, zeros / size if size else None, bad, named.get(name, ""))
        for place, (name, norm, largest, zeros, bad, size) in enumerate(figures)
    ]


def trouble(row: Row) -> tuple[float, ...]:
    """How much there is to worry about: inf and NaN, findings, dead gradients, zeros."""
    found = TROUBLING[::-1].index(row.named) + 1 if row.named in TROUBLING else 0
    return (row.nonfinite, found, float(row.max == 0), row.zeros or 0.0)


def _largest(value: float) -> float:
    """NaN sorts above everything: it is what one looks for."""
    return math.inf if value != value else value


COLUMNS: tuple[Column, ...] = (
    Column("parameter", lambda row: row.name, lambda row: row.place, False),
    Column("norm", lambda row: figure(row.norm), lambda row: _largest(row.norm)),
    Column("max", lambda row: figure(row.max), lambda row: _largest(row.max)),
    Column(
        "zeros",
        lambda row: "–" if row.zeros is None else percent(row.zeros),
        lambda row: -1.0 if row.zeros is None else row.zeros,
    ),
    Column("inf/NaN", lambda row: f"{row.nonfinite:,}" if row.nonfinite else "·", trouble),
)
TROUBLE = len(COLUMNS) - 1


def name_width(width: int, longest: int) -> int:
    """Cells for the names: as many as the longest wants, where the figures leave them."""
    room = width - LEAD - 1 - (len(COLUMNS) - 1) * (FIGURE_WIDTH + GAP)
    return max(min(longest, room), NAME_WIDTH)


def line(cells: list[str], names: int, lead: str = " " * LEAD) -> str:
    """One line of the table: the name on the left, the figures on the right of their columns."""
    name = set_cell_size(shorten(cells[0], names), names)
    return f"{lead}{name}" + "".join(f"{cell:>{FIGURE_WIDTH + GAP}}" for cell in cells[1:])
