"""A table of the gradients of the latest detail step, one parameter a row, trouble first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Blur, Click, Focus
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ampwatch.record import TensorStats
from ampwatch.rules import Finding
from ampwatch.rules.telling import troubles
from ampwatch.tui.event_line import SIGNS
from ampwatch.tui.foreign import plain
from ampwatch.tui.panels.named import named_tensors
from ampwatch.tui.panels.tensor_rows import (
    COLUMNS,
    FIGURE_WIDTH,
    GAP,
    LEAD,
    TROUBLE,
    Row,
    line,
    name_width,
    rows_of,
)
from ampwatch.tui.rows import Rows

HELP = """\
The gradient of each parameter at the latest detail step, true magnitudes (without the scale).
Trouble comes first: inf and NaN, what a finding names (✗ !), all 0, then those with most zeros.
Press o for the next order, O to turn it round, or click the head of a column.
enter (or a click) shows the chosen one on the Range tab."""
NOTHING = "No tensor has been measured yet: detail steps are spaced out to keep the overhead low."


class Table(Rows):
    """The rows of the table; its keys choose the order."""

    FOLLOWS = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "tensors--bad",
        "tensors--dead",
        "tensors--named",
        "tensors--chosen",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "order(1)", "Order", tooltip="Sort by the next column", id="tensors.order"),
        Binding(
            "O", "order(0)", "Turn", show=False, tooltip="Reverse the order", id="tensors.reverse"
        ),
        Binding(
            "enter",
            "range",
            "Range",
            tooltip="Show the chosen one on the Range tab",
            id="tensors.range",
        ),
        Binding(
            "up", "move(-1)", "Up", show=False, tooltip="The parameter before", id="tensors.up"
        ),
        Binding(
            "down", "move(1)", "Down", show=False, tooltip="The next parameter", id="tensors.down"
        ),
    ]

    @dataclass
    class Ordered(Message):
        """Another order is wanted: so many columns on; 0 turns the present one round."""

        step: int

    @dataclass
    class Chosen(Message):
        """One parameter is to be seen on the Range tab."""

        name: str

    def __init__(self) -> None:
        super().__init__(id="tensors-table")
        self.shown: list[Row] = []
        self.longest = 0
        self.place = 0
        """Of the chosen row."""

    def show(self, rows: list[Row], longest: int) -> None:
        """Show these; the chosen parameter stays chosen wherever it stands now."""
        before = self.shown[self.place].name if self.place < len(self.shown) else None
        moved = self.place >= len(rows) or rows[self.place].name != before
        if moved and self.place:  # the first row stays the first: trouble comes there
            names = (place for place, row in enumerate(rows) if row.name == before)
            self.place = next(names, 0)
        self.shown, self.longest = rows, longest
        self.rows_changed()

    def count_rows(self, width: int) -> int:
        return len(self.shown)

    def row(self, index: int, width: int) -> Text:
        if index >= len(self.shown):
            return Text(end="")
        row = self.shown[index]
        cells = [column.cell(row) for column in COLUMNS]
        chosen = index == self.place and self.has_focus
        lead = ("▌" if chosen else " ") + (SIGNS[row.named] if row.named else " ")
        text = Text(line(cells, name_width(width, self.longest), lead), no_wrap=True, end="")
        if row.nonfinite:
            text.stylize(self.get_component_rich_style("tensors--bad", partial=True))
        elif row.named:
            text.stylize(self.get_component_rich_style("tensors--named", partial=True))
        elif row.max == 0:
            text.stylize(self.get_component_rich_style("tensors--dead", partial=True))
        if chosen:
            text.pad_right(max(width - text.cell_len, 0))
            text.stylize(self.get_component_rich_style("tensors--chosen", partial=True))
        return text

    def action_order(self, step: int) -> None:
        self.post_message(self.Ordered(step))

    def action_range(self) -> None:
        if self.place < len(self.shown):
            self.post_message(self.Chosen(self.shown[self.place].name))

    def action_move(self, step: int) -> None:
        """To the row before or after; from one that was scrolled away, to one that is seen."""
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        place = self.place + step
        if not top <= self.place < top + height:
            place = top
        self._choose(min(max(place, 0), max(len(self.shown) - 1, 0)))

    def on_click(self, event: Click) -> None:
        index = event.y + self.scroll_offset.y
        if index < len(self.shown):
            self._choose(index)
            self.action_range()

    def on_focus(self, event: Focus) -> None:
        self.refresh()

    def on_blur(self, event: Blur) -> None:
        self.refresh()

    def _choose(self, place: int) -> None:
        self.place = place
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        top = min(max(top, place - height + 1), place)
        self.scroll_to(y=top, animate=False, immediate=True)
        self.refresh()


class Head(Widget):
    """The heads of the columns; a click orders by one."""

    @dataclass
    class Chosen(Message):
        column: int

    def __init__(self) -> None:
        super().__init__(id="tensors-head")
        self._shown = (TROUBLE, True, 0)

    def show(self, by: int, falling: bool, longest: int) -> None:
        if (by, falling, longest) != self._shown:
            self._shown = (by, falling, longest)
            self.refresh()

    @property
    def names(self) -> int:
        return name_width(self.content_size.width - 1, self._shown[2])  # 1: the scroll bar

    def render(self) -> Content:
        by, falling, _ = self._shown
        arrow = "↓" if falling else "↑"
        heads = [
            f"{arrow}{column.head}" if number == by else column.head
            for number, column in enumerate(COLUMNS)
        ]
        return Content(line(heads, self.names))

    def on_click(self, event: Click) -> None:
        width = self.names + LEAD
        if event.x < width:
            self.post_message(self.Chosen(0))
        else:
            column = 1 + (event.x - width) // (FIGURE_WIDTH + GAP)
            self.post_message(self.Chosen(min(column, len(COLUMNS) - 1)))


class Tensors(Vertical):
    """The table, its heads, and a line that says which step it shows."""

    HELP = HELP

    def __init__(self) -> None:
        super().__init__(id="tensors")
        self._stats: TensorStats | None = None
        self._named: dict[str, str] = {}
        self._places: list[tuple[str, str | None, str | None]] = []
        self.caption = Static(NOTHING, id="tensors-caption", markup=False)
        self.head = Head()
        self.table = Table()
        self.by = TROUBLE
        self.falling = True

    def compose(self) -> ComposeResult:
        yield self.caption
        yield self.head
        yield self.table

    @property
    def chosen(self) -> str | None:
        """The parameter on whose row the cursor is."""
        rows, place = self.table.shown, self.table.place
        return rows[place].name if place < len(rows) else None

    def sync(self, stats: TensorStats | None, findings: Sequence[Finding] = ()) -> None:
        """Show the latest figures if they are not on screen yet; mark what findings name."""
        places = [(found.severity, found.tensor, found.module) for found in troubles(findings)]
        if stats is not self._stats or places != self._places:
            self._stats, self._places = stats, places
            self._named = named_tensors(stats.name, findings) if stats is not None else {}
            self._fill()

    def order(self, by: int) -> None:
        """Sort by a column; the same one again turns the order round."""
        self.falling = not self.falling if by == self.by else COLUMNS[by].falling
        self.by = by
        self._fill()

    def on_table_ordered(self, message: Table.Ordered) -> None:
        self.order((self.by + message.step) % len(COLUMNS))

    def on_head_chosen(self, message: Head.Chosen) -> None:
        self.order(message.column)

    def _fill(self) -> None:
        stats = self._stats
        rows = rows_of(stats, self._named) if stats is not None else []
        rows.sort(key=COLUMNS[self.by].order, reverse=self.falling)  # type: ignore[arg-type]
        longest = max((cell_len(plain(row.name)) for row in rows), default=0)
        self.table.show(rows, longest)
        self.head.show(self.by, self.falling, longest)
        if stats is None:
            self.caption.update(NOTHING)
        else:
            name = "trouble" if self.by == TROUBLE else COLUMNS[self.by].head
            first = "largest" if self.falling else "smallest"
            if self.by == 0:
                first = "first"
            self.caption.update(
                f"step {stats.step:,} · {len(rows):,} parameters · {name}, {first} first"
            )
