"""The screen that explains a finding: what, where, the numbers, why, and what to do."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ampwatch.rules import Finding, Rule
from ampwatch.rules.telling import evidence_words, when_words, where_words
from ampwatch.tui.event_line import SIGNS, STYLES
from ampwatch.tui.foreign import plain

HEADING, CODE = "bold $text-primary", "$foreground on $panel"


def explanation(finding: Finding, rule: Rule | None) -> Content:
    """Everything that is to be said about a finding; ``rule`` is the one that found it."""
    style = STYLES.get(finding.severity, "")
    sign = SIGNS.get(finding.severity, "·")
    lines = [
        Content.assemble((f"{sign} {finding.severity}  ", style), (plain(finding.rule), "bold")),
        Content(plain(finding.message)),
    ]
    numbers = [("when", when_words(finding)), ("where", where_words(finding))]
    numbers += evidence_words(finding.evidence)
    known = [(name, value) for name, value in numbers if value]
    if known:
        lines += _headed("In numbers")
        lines += [
            Content.assemble((f"  {plain(name)}: ", "$foreground-muted"), plain(value))
            for name, value in known
        ]
    if rule is not None:
        for heading, text in (("Why", rule.explanation), ("What to do", rule.remedy)):
            lines += [*_headed(heading), Content(plain(text))]
        for heading, code in (("Before", rule.before), ("After", rule.after)):
            if code:
                lines += _headed(heading)
                lines += [Content.styled(f"  {plain(line)}", CODE) for line in code.splitlines()]
        if rule.source:
            lines += [*_headed("Source"), Content.styled(plain(rule.source), "$foreground-muted")]
    return Content("\n").join(lines)


def _headed(heading: str) -> list[Content]:
    return [Content(""), Content.styled(heading, HEADING)]


class ExplanationScreen(ModalScreen[None]):
    """One finding, explained; closed by escape."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss", "Close", id="explanation.close")
    ]

    def __init__(self, finding: Finding, rule: Rule | None) -> None:
        super().__init__()
        self.finding = finding
        self._rule = rule

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="explanation") as box:
            box.border_subtitle = "esc closes"
            yield Static(explanation(self.finding, self._rule))

    def action_dismiss(self, result: None = None) -> None:  # type: ignore[override]
        if self.app.screen is self:  # two keys at once close it once
            self.dismiss(None)
