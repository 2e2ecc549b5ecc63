"""Everything that happened in the run, in plain words."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from rich.style import Style
from rich.text import Text

from ampwatch.run import Run
from ampwatch.run.events import Event
from ampwatch.tui.event_line import SIGNS
from ampwatch.tui.foreign import plain
from ampwatch.tui.rows import Rows

HELP = """\
Above, what is recognised in the run, worst first: choose with up and down, enter explains.
Below, each skipped step, change of the scale and turned knob. · tells, ! warns, ✗ is an error.
It follows the newest entry; scroll up to stay where you are, press end to follow again."""
NOTHING = "Nothing has happened yet: no step was skipped, no knob was turned."
STYLES = {"info": "events--info", "warning": "events--warning", "error": "events--error"}


def when(event: Event) -> str:
    """The step of an event, or its first and last."""
    if event.last_step is not None and event.last_step != event.step:
        return f"{event.step:,}–{event.last_step:,}"
    return f"{event.step:,}"


class Events(Rows):
    """The events of the run, oldest first, each wrapped beside its step."""

    HELP = HELP
    COMPONENT_CLASSES: ClassVar[set[str]] = {"events--step", *STYLES.values()}

    def __init__(self) -> None:
        super().__init__(id="events-list")
        self._events: tuple[Event, ...] = ()
        self._seen: tuple[int, int] = (-1, -1)
        self._rows: list[tuple[str, str, str]] = []

    def sync(self, run: Run) -> None:
        """Show the run's events if they changed since the last call."""
        seen = (id(run), run.events.version)
        if seen != self._seen:
            self._seen = seen
            self._events = tuple(run.events.items)
            self.rows_changed()

    def count_rows(self, width: int) -> int:
        margin = max((len(when(event)) for event in self._events), default=0)
        self._rows = []
        for event in self._events:
            sign = SIGNS.get(event.severity, "·")
            words = plain(event.text)
            wrapped = textwrap.wrap(words, max(width - margin - 5, 12)) or [""]
            for number, part in enumerate(wrapped):
                step = when(event).rjust(margin) if number == 0 else " " * margin
                lead = f" {sign} " if number == 0 else "   "
                self._rows.append((step, lead + part, event.severity))
        return max(len(self._rows), 1)

    def row(self, index: int, width: int) -> Text:
        if not self._rows:
            return Text(f" {NOTHING}", style=self._style("events--step"), end="")
        if index >= len(self._rows):
            return Text(end="")
        step, words, severity = self._rows[index]
        text = Text(f" {step} ", style=self._style("events--step"), no_wrap=True, end="")
        whole = Text(no_wrap=True, end="")
        whole.append_text(text)
        whole.append(words, self._style(STYLES.get(severity, "events--info")))
        return whole

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(name, partial=True)
