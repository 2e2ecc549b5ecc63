"""One line of plain words: the latest event, or what is being waited for."""

from __future__ import annotations

import textwrap

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget

from ampwatch.tui.foreign import plain

SIGNS = {"info": "·", "warning": "!", "error": "✗"}
STYLES = {"info": "$foreground-muted", "warning": "bold $text-warning", "error": "bold $text-error"}


def event_content(text: str, severity: str, width: int, height: int) -> Content:
    """A sentence behind the sign of its severity: the sign tells as much as the colour.

    It is wrapped beside its sign, and what does not fit into ``height`` lines ends in "…".
    """
    room = max(width - 2, 8)
    lines = textwrap.wrap(plain(text), room, max_lines=max(height, 1), placeholder="…")
    style = STYLES.get(severity, "")
    return Content.assemble(
        (f"{SIGNS.get(severity, '·')} ", style),
        ("\n  ".join(lines), "" if severity == "info" else style),
    )


class EventLine(Widget):
    """Shows the latest event of the run on every tab; a click asks for more about it."""

    class Clicked(Message):
        """Somebody wants to know more."""

    def __init__(self) -> None:
        super().__init__(id="event")
        self._shown = ("", "info")

    def show(self, text: str, severity: str = "info") -> None:
        if (text, severity) != self._shown:
            self._shown = (text, severity)
            self.refresh()

    def render(self) -> Content:
        return event_content(*self._shown, *self.content_size)

    def on_click(self, event: Click) -> None:
        self.post_message(self.Clicked())
