"""The help screen, made from the bindings themselves and the help of each panel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ampwatch.tui.panels import PLOTS, events, explain, output, tensors
from ampwatch.tui.panels import range as range_panel
from ampwatch.tui.panels.events_tab import EventsTab
from ampwatch.tui.panels.findings import Findings
from ampwatch.tui.rows import Rows

GROUPS = {
    "training": "Change the training",
    "screen": "The screen",
    "run": "The run",
    "lesson": "The lesson",
    "explain": "While a step is explained",
    "range": "On the Range tab",
    "tensors": "On the Tensors tab",
    "events": "On the Events tab",
    "list": "On the Events and Output tabs",
}
READING = (
    *((panel.title, panel.help) for panel in PLOTS),
    ("Range", range_panel.HELP),
    ("Tensors", tensors.HELP),
    ("Events", events.HELP),
    ("Output", output.HELP),
    ("A step taken apart", explain.HELP),
)


def grouped(bindings: Iterable[BindingType]) -> dict[str, list[Binding]]:
    """The bindings by what they are about: the first word of their id."""
    groups: dict[str, list[Binding]] = {name: [] for name in GROUPS}
    for binding in bindings:
        if not isinstance(binding, Binding):
            continue
        group = (binding.id or "").partition(".")[0]
        if group in groups:
            groups[group].append(binding)
    return groups


def tab_keys() -> list[BindingType]:
    """The keys that the lists on the tabs have of their own."""
    owners = (explain.Body, range_panel.Range, tensors.Table, EventsTab, Findings, Rows)
    return [binding for owner in owners for binding in owner.BINDINGS]


WIDTHS = [(0, "-normal"), (140, "-wide")]


class HelpScreen(ModalScreen[None]):
    """Every key, and how to read every panel."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "dismiss", "Close", id="help.close")
    ]

    def __init__(self, bindings: Iterable[BindingType]) -> None:
        super().__init__()
        self._bindings_shown = tuple(bindings)

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(self.keys(), id="help-keys")
            yield Static(self.reading(), id="help-reading")

    def keys(self) -> Content:
        """The keys, one a line, under the heading of their group."""
        lines: list[Content] = []
        for group, bindings in grouped(self._bindings_shown).items():
            if not bindings:
                continue
            lines.append(Content.styled(GROUPS[group], "bold $text-primary"))
            merged: dict[str, list[str]] = {}
            for binding in bindings:
                words = binding.tooltip or binding.description
                keys = [binding.with_key(key) for key in binding.key.split(",")]
                merged.setdefault(words, []).extend(map(self.app.get_key_display, keys))
            for words, names in merged.items():
                lines.append(
                    Content.assemble((f"  {' '.join(names):>9}  ", "bold"), (words, "$foreground"))
                )
            lines.append(Content(""))
        return Content("\n").join(lines)

    def reading(self) -> Content:
        """How to read each panel."""
        lines: list[Content] = [Content.styled("How to read it", "bold $text-primary")]
        for title, text in READING:
            lines.append(Content.styled(title, "bold"))
            lines.extend(Content.styled(line, "$foreground") for line in text.splitlines())
            lines.append(Content(""))
        return Content("\n").join(lines)

    def action_dismiss(self, result: None = None) -> None:  # type: ignore[override]
        if self.app.screen is self:  # two keys at once close it once
            self.dismiss(None)
