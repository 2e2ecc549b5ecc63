"""A table of the gradients of the latest detail step, one parameter a row, trouble first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Static

from ampwatch.record import TensorStats
from ampwatch.tui.figures import figure, percent
from ampwatch.tui.foreign import shorten

HELP = """\
The gradient of each parameter at the latest detail step, true magnitudes (without the scale).
Trouble comes first: inf and NaN, then gradients that are all 0, then those with most zeros.
Press o for the next order, O to turn it round, or click the head of a column."""
MOST_ROWS = 1000
FIGURE_WIDTH = 8
FIGURES_WIDTH = 4 * (FIGURE_WIDTH + 2) + 3
"""Cells that the columns of figures take, with their padding and the scroll bar."""
NOTHING = "No tensor has been measured yet: detail steps are spaced out to keep the overhead low."


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


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its head, its cell, and the order it gives."""

    head: str
    cell: Callable[[Row], str]
    order: Callable[[Row], object]
    falling: bool = True
    """Whether the largest comes first when the order is chosen."""


def rows_of(stats: TensorStats) -> list[Row]:
    sizes = stats.size or (0,) * len(stats.name)
    figures = zip(
        stats.name, stats.norm, stats.max, stats.zeros, stats.nonfinite, sizes, strict=True
    )
    return [
        Row(place, name, norm, largest, zeros / size if size else None, bad)
        for place, (name, norm, largest, zeros, bad, size) in enumerate(figures)
    ]


def trouble(row: Row) -> tuple[float, float, float]:
    """How much there is to worry about: inf and NaN, dead gradients, zeros."""
    return (row.nonfinite, float(row.max == 0), row.zeros or 0.0)


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


class Table(DataTable[Text]):
    """The table itself; its keys choose the order."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "order(1)", "Order", tooltip="Sort by the next column", id="tensors.order"),
        Binding(
            "O", "order(0)", "Turn", show=False, tooltip="Reverse the order", id="tensors.reverse"
        ),
    ]

    def action_order(self, step: int) -> None:
        panel = self.parent
        if isinstance(panel, Tensors):
            panel.order((panel.by + step) % len(COLUMNS))


class Tensors(Vertical):
    """The table and a line that says which step it shows."""

    HELP = HELP

    def __init__(self) -> None:
        super().__init__(id="tensors")
        self._stats: TensorStats | None = None
        self.by = TROUBLE
        self.falling = True

    def compose(self) -> ComposeResult:
        yield Static(NOTHING, id="tensors-caption", markup=False)
        yield Table(cursor_type="row", zebra_stripes=False, id="tensors-table")

    def on_mount(self) -> None:
        table = self.query_one(Table)
        for number, column in enumerate(COLUMNS):
            head = Text(column.head, justify="left" if number == 0 else "right")
            table.add_column(head, key=str(number), width=None if number == 0 else FIGURE_WIDTH)

    def sync(self, stats: TensorStats | None) -> None:
        """Show the latest figures if they are not on screen yet."""
        if stats is not self._stats:
            self._stats = stats
            self._fill()

    def order(self, by: int) -> None:
        """Sort by a column; the same one again turns the order round."""
        self.falling = not self.falling if by == self.by else COLUMNS[by].falling
        self.by = by
        self._fill()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        self.order(event.column_index)

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        """Write the figures into the cells: the rows stay, so cursor and scrolling do as well."""
        table, caption = self.query_one(Table), self.query_one("#tensors-caption", Static)
        stats = self._stats
        rows = rows_of(stats) if stats is not None else []
        rows.sort(key=COLUMNS[self.by].order, reverse=self.falling)  # type: ignore[arg-type]
        shown = rows[:MOST_ROWS]
        room = max(self.size.width - FIGURES_WIDTH, FIGURE_WIDTH)
        while table.row_count < len(shown):
            table.add_row(*[Text()] * len(COLUMNS), key=str(table.row_count))
        while table.row_count > len(shown):
            table.remove_row(str(table.row_count - 1))
        for line, row in enumerate(shown):
            style = "bold" if row.nonfinite else ("dim" if row.max == 0 else "")
            for number, column in enumerate(COLUMNS):
                justify: Literal["left", "right"] = "left" if number == 0 else "right"
                words = column.cell(row) if number else shorten(row.name, room)
                cell = Text(words, style, justify=justify, no_wrap=True)
                if table.get_cell_at((line, number)) != cell:  # type: ignore[arg-type]
                    table.update_cell_at((line, number), cell, update_width=number == 0)  # type: ignore[arg-type]
        if stats is None:
            caption.update(NOTHING)
        else:
            arrow = "↓" if self.falling else "↑"
            more = f", first {MOST_ROWS:,} shown" if len(rows) > MOST_ROWS else ""
            name = "trouble" if self.by == TROUBLE else COLUMNS[self.by].head
            caption.update(
                f"step {stats.step:,} · {len(rows):,} parameters{more} · ordered by {name} {arrow}"
            )
