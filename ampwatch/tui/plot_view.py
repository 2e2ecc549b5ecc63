"""The one widget that shows a plot: drawn when its data moved, sent row by row where it changed."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ampwatch.plot.draw import draw
from ampwatch.plot.spec import STYLES, PlotSpec, Row
from ampwatch.plot.text import pad, plain

_Drawn: TypeAlias = tuple[PlotSpec, tuple[int, ...], Size, bool]


class PlotView(Widget, can_focus=True):
    """Shows the latest plot spec it was given, in whatever size it has."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"plot--{style}" for style in STYLES}
    DEFAULT_CSS = """
    PlotView {
        height: 1fr;
        width: 1fr;

        .plot--frame { color: $foreground-muted; }
        .plot--title { color: $foreground; text-style: bold; }
        .plot--value { color: $text-primary; text-style: bold; }
        .plot--curve0 { color: $primary; }
        .plot--curve1 { color: $success; }
        .plot--curve2 { color: $accent; }
        .plot--curve3 { color: $secondary; }
        .plot--curve4 { color: $warning; }
        .plot--skip { color: $text-warning; text-style: bold; }
        .plot--bad { color: $text-error; text-style: bold; }
        .plot--knob { color: $text-accent; }
        .plot--line { color: $text-warning; }
        .plot--empty { color: $foreground-muted; text-style: italic; }

        &:focus .plot--title { color: $text-primary; text-style: bold underline; }
    }
    """

    class Chosen(Message):
        """A plot was clicked, to be seen larger."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name
            """The quantity that the plot shows."""

    def __init__(
        self,
        *,
        ascii_only: bool = False,
        name: str | None = None,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.ascii_only = ascii_only
        """Draw without braille and box characters."""
        self.spec: PlotSpec | None = None
        self._drawn: _Drawn | None = None
        self._rows: tuple[Row, ...] = ()
        self._width = 0
        self._strips: dict[int, Strip] = {}
        self._styles: dict[str, Style] = {}

    def show(self, spec: PlotSpec) -> None:
        """Show a plot; nothing is drawn or sent if it looks the same, or is not on screen."""
        self.spec = spec
        if not self.is_on_screen or not self.size:
            return  # drawn when its rows are asked for
        old = self._rows
        self._draw()
        if self._rows is old:
            return
        if len(old) != len(self._rows):
            self.refresh()
            return
        moved = [number for number, row in enumerate(self._rows) if row != old[number]]
        if moved:  # without a region everything would be sent
            self.refresh(*(Region(0, number, self.size.width, 1) for number in moved))

    def render_line(self, y: int) -> Strip:
        self._draw()
        strip = self._strips.get(y)
        if strip is None:
            row = self._rows[y] if y < len(self._rows) else ()
            if not row:
                return Strip.blank(self.size.width, self._style("frame"))
            segments = [Segment(text, self._style(key)) for text, key in row]
            strip = self._strips[y] = Strip(segments, self.size.width)
        return strip

    def notify_style_update(self) -> None:
        self._styles.clear()
        self._strips.clear()
        super().notify_style_update()

    def on_click(self) -> None:
        if self.spec is not None:
            self.post_message(self.Chosen(self.spec.name))

    def _draw(self) -> None:
        """Bring the rows up to date with the spec, the series behind it and the size."""
        spec, size = self.spec, self.size
        if spec is None:
            self._rows, self._drawn = (), None
            return
        versions = tuple(curve.history.version for curve in spec.curves)
        wanted: _Drawn = (spec, versions, size, self.ascii_only)
        if wanted == self._drawn:
            return
        self._drawn = wanted
        rows = _drawn_rows(spec, size, self.ascii_only)
        old = self._rows
        if size.width != self._width or len(rows) != len(old):
            self._strips.clear()
        else:
            for number, row in enumerate(rows):
                if row != old[number]:
                    self._strips.pop(number, None)
        self._rows, self._width = rows, size.width

    def _style(self, key: str) -> Style:
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self.get_component_rich_style(f"plot--{key}")
        return style


def _drawn_rows(spec: PlotSpec, size: Size, ascii_only: bool) -> tuple[Row, ...]:
    try:
        return draw(spec, size.width, size.height, ascii_only=ascii_only).rows
    except Exception as error:
        # An error in a widget would end the whole dashboard, and the run is worth more than a plot.
        words = pad(plain(f"cannot draw {spec.name}: {error}"), size.width)
        return ((words, "bad"),), *[()] * (size.height - 1)
