"""The Events tab: how the run is to be judged, what was found in it, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from ampwatch.rules import Finding
from ampwatch.rules.telling import verdict
from ampwatch.run import Run
from ampwatch.tui.foreign import plain
from ampwatch.tui.panels.events import Events
from ampwatch.tui.panels.findings import Findings


class EventsTab(Vertical):
    """Findings above, events below; tab goes from one to the other."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "explain",
            "Explain",
            tooltip="Explain the chosen finding: why, and what to do",
            id="events.explain",
        ),
        Binding(
            "tab,shift+tab",
            "other_list",
            "Other list",
            show=False,
            tooltip="From the findings to the events, and back",
            id="events.other",
        ),
    ]

    @dataclass
    class Explain(Message):
        """Somebody wants to know more about a finding; None: there is none."""

        finding: Finding | None

    def __init__(self) -> None:
        super().__init__(id="events")
        self.verdict = Static(id="verdict", markup=False)
        self.findings = Findings()
        self.events = Events()
        self._judged = ""

    def compose(self) -> ComposeResult:
        yield self.verdict
        yield self.findings
        yield Static("What happened, oldest first", id="events-head", markup=False)
        yield self.events

    def sync(self, run: Run, findings: Sequence[Finding]) -> None:
        """Show the run's events and what was found in it."""
        judged = plain(verdict(run, findings)) if run.steps else ""
        if judged != self._judged:
            self._judged = judged
            self.verdict.update(judged)
        self.set_class(bool(findings), "-found")
        self.findings.show(findings)
        self.events.sync(run)

    def focus_list(self) -> None:
        """Give the keys to the findings, or to the events where nothing was found."""
        (self.findings if self.findings.findings else self.events).focus()

    def action_other_list(self) -> None:
        if self.findings.has_focus or not self.findings.findings:
            self.events.focus()
        else:
            self.findings.focus()

    def action_explain(self) -> None:
        self.post_message(self.Explain(self.findings.chosen))

    def on_findings_clicked(self, message: Findings.Clicked) -> None:
        self.action_explain()
