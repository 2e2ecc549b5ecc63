"""The widget that shows a range picture: drawn when what it shows has changed."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from ampwatch.plot.range_picture import INKS, PLAIN, ZONES, RangeSpec, draw_range
from ampwatch.plot.spec import Picture


class RangeView(Widget):
    """Shows the latest spec that it was given, in whatever size it has."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"range--{key}" for key in (*INKS, *PLAIN, *ZONES)}
    DEFAULT_CSS = """
    RangeView {
        height: 1fr;
        width: 1fr;

        .range--true { color: $secondary; }
        .range--scaled { color: $primary; }
        .range--lost { color: $text-error; }
        .range--fill { color: $foreground 30%; }
        .range--label { color: $foreground; text-style: bold; }
        .range--axis { color: $foreground-muted; }
        .range--empty { color: $foreground-muted; text-style: italic; }
        .range--zero { background: $error 12%; }
        .range--subnormal { background: $warning 12%; }
        .range--normal { background: $success 8%; }
        .range--overflow { background: $error 12%; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="range-view")
        self.spec: RangeSpec | None = None
        self.ascii_only = False
        self._picture: Picture | None = None
        self._styles: dict[str, Style] = {}

    def show(self, spec: RangeSpec) -> None:
        """Show a spec; nothing is drawn if it is the one on screen."""
        if spec != self.spec:
            self.spec, self._picture = spec, None
            self.refresh()

    def render_line(self, y: int) -> Strip:
        picture = self._draw()
        if picture is None or y >= picture.height:
            return Strip.blank(self.size.width, self.rich_style)
        segments = [Segment(text, self._style(key)) for text, key in picture.rows[y]]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def _draw(self) -> Picture | None:
        width, height = self.size
        picture = self._picture
        if self.spec is None or (
            picture is not None and (picture.width, picture.height) == (width, height)
        ):
            return picture
        self._picture = draw_range(self.spec, width, height, ascii_only=self.ascii_only)
        return self._picture

    def _style(self, key: str) -> Style:
        """An ink, and behind it the shade of its zone."""
        style = self._styles.get(key)
        if style is None:
            ink, _, zone = key.partition(" ")
            style = self.get_component_rich_style(f"range--{ink}")
            if zone:
                shade = self.get_component_rich_style(f"range--{zone}").bgcolor
                style += Style(bgcolor=shade)
            self._styles[key] = style
        return style
