"""What the rules found, worst first; one of them is chosen and can be explained."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Blur, Click, Focus
from textual.message import Message

from ampwatch.rules import Finding
from ampwatch.rules.telling import when_words, where_words
from ampwatch.tui.event_line import SIGNS
from ampwatch.tui.foreign import plain
from ampwatch.tui.rows import Rows

STYLES = {"info": "findings--info", "warning": "findings--warning", "error": "findings--error"}


def same(one: Finding, other: Finding) -> bool:
    """Whether two findings are about the same thing, at two times."""
    return identity(one) == identity(other)


def identity(finding: Finding) -> tuple[str, str | None, str | None]:
    """What stays the same while a finding grows."""
    return finding.rule, finding.tensor, finding.module


def finding_lines(finding: Finding, width: int) -> list[str]:
    """A finding beside its sign: what happened, and below it the rule, the steps and the place."""
    room = max(width - 3, 12)
    facts = [finding.rule, when_words(finding), where_words(finding)]
    below = plain(" · ".join(fact for fact in facts if fact))
    lines = [*textwrap.wrap(plain(finding.message), room), *textwrap.wrap(below, room)]
    sign = SIGNS.get(finding.severity, "·")
    return [f"{sign if number == 0 else ' '} {line}" for number, line in enumerate(lines)]


class Findings(Rows):
    """The findings of the run; the chosen one has a bar at its left."""

    FOLLOWS = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"findings--chosen", *STYLES.values()}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False, tooltip="The finding before", id="events.up"),
        Binding(
            "down", "move(1)", "Down", show=False, tooltip="The next finding", id="events.down"
        ),
    ]

    @dataclass
    class Clicked(Message):
        """A finding was clicked: it is the chosen one now."""

    def __init__(self) -> None:
        super().__init__(id="findings")
        self.findings: tuple[Finding, ...] = ()
        self.place = 0
        self._rows: list[tuple[int, str]] = []

    @property
    def chosen(self) -> Finding | None:
        return self.findings[self.place] if self.findings else None

    def show(self, findings: Sequence[Finding]) -> None:
        """Show these; the chosen one stays chosen wherever it stands now."""
        fresh = tuple(findings)
        if fresh == self.findings:
            return
        before = self.chosen
        self.findings = fresh
        places = [
            place
            for place, finding in enumerate(fresh)
            if before is not None and same(before, finding)
        ]
        self.place = places[0] if places else 0
        height = self.virtual_size.height
        self.rows_changed()
        if self.virtual_size.height != height:
            self.refresh(layout=True)

    def count_rows(self, width: int) -> int:
        self._rows = [
            (place, line)
            for place, finding in enumerate(self.findings)
            for line in finding_lines(finding, width)
        ]
        return len(self._rows)

    def row(self, index: int, width: int) -> Text:
        if index >= len(self._rows):
            return Text(end="")
        place, line = self._rows[index]
        chosen = place == self.place and self.has_focus
        name = STYLES.get(self.findings[place].severity, "findings--info")
        text = Text(f"{'▌' if chosen else ' '}{line}".ljust(width), no_wrap=True, end="")
        text.stylize(self.get_component_rich_style(name, partial=True))
        if chosen:
            text.stylize(self.get_component_rich_style("findings--chosen", partial=True))
        return text

    def action_move(self, step: int) -> None:
        self._choose(min(max(self.place + step, 0), max(len(self.findings) - 1, 0)))

    def on_click(self, event: Click) -> None:
        index = event.y + self.scroll_offset.y
        if index < len(self._rows):
            self._choose(self._rows[index][0])
            self.post_message(self.Clicked())

    def on_focus(self, event: Focus) -> None:
        self.refresh()

    def on_blur(self, event: Blur) -> None:
        self.refresh()

    def _choose(self, place: int) -> None:
        self.place = place
        rows = [index for index, (of, _) in enumerate(self._rows) if of == place]
        if rows:
            top, height = self.scroll_offset.y, self.size.height
            if rows[0] < top:
                top = rows[0]
            elif rows[-1] >= top + height:
                top = rows[-1] - height + 1
            self.scroll_to(y=top, animate=False, immediate=True)
        self.refresh()
