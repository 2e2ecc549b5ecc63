"""A scrolling list of rows of which only those on screen are made; it follows its end until it is
scrolled up."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip


class Rows(ScrollView, can_focus=True):
    """Subclasses say how many rows there are at a width, and what stands in each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "end",
            "scroll_end",
            "Newest",
            show=False,
            tooltip="Go to the end and follow it",
            id="list.end",
        )
    ]

    FOLLOWS: ClassVar[bool] = True
    """Whether the newest row is kept on screen until it is scrolled away."""

    follows = True

    def count_rows(self, width: int) -> int:
        raise NotImplementedError

    def row(self, index: int, width: int) -> Text:
        raise NotImplementedError

    @property
    def row_width(self) -> int:
        return max(self.scrollable_content_region.width, 1)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.follows = round(new_value) >= self.max_scroll_y

    def rows_changed(self, dropped: int = 0) -> None:
        """Rows came, changed, or ``dropped`` of the first ones went."""
        width = self.row_width
        follows, top = self.follows and self.FOLLOWS, self.scroll_offset.y
        self.virtual_size = Size(width, self.count_rows(width))
        if follows:
            self.action_scroll_end()
        elif dropped:  # what is being read stays where it is
            self.scroll_to(y=max(top - dropped, 0), animate=False, immediate=True)
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        self.rows_changed()

    def action_scroll_end(self) -> None:
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)

    def render_line(self, y: int) -> Strip:
        width = self.row_width
        index = y + self.scroll_offset.y
        style = self.rich_style
        if index >= self.virtual_size.height:
            return Strip.blank(self.size.width, style)
        text = self.row(index, width)
        segments = [
            Segment(segment.text, style + segment.style if segment.style else style)
            for segment in text.render(self.app.console)
        ]
        return Strip(segments).adjust_cell_length(self.size.width, style)
