"""The findings of a run as a text to read and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from ampwatch.headless.summary import ending, figures
from ampwatch.rules import RULE_BY_ID, Finding
from ampwatch.rules.telling import evidence_words, is_healthy, verdict, when_words, where_words
from ampwatch.session import Session

LABELS = 10


def report_json(session: Session) -> dict[str, Any]:
    """The run, its findings, and whether it is healthy."""
    return {
        **session.summary(),
        "healthy": is_healthy(session.run, session.findings),
        "verdict": verdict(session.run, session.findings),
    }


def report_text(session: Session, width: int = 100) -> str:
    """How the run went, how it is to be judged, and each finding with its reasons."""
    run = session.run
    name = run.info.name if run.info is not None and run.info.name else "the run"
    lines = [f"{name}: {ending(run)}"]
    if run.last is not None:
        lines.extend(f"  {line}" for line in figures(run))
    lines += ["", *textwrap.wrap(verdict(run, session.findings), width)]
    for finding in session.findings:
        lines += ["", *_finding(finding, width)]
    return "\n".join(lines)


def _finding(finding: Finding, width: int) -> Iterator[str]:
    yield f"{finding.severity}  {finding.rule}"
    evidence = ", ".join(f"{name} {value}" for name, value in evidence_words(finding.evidence))
    rule = RULE_BY_ID.get(finding.rule)
    parts = [
        ("what", finding.message),
        ("when", when_words(finding)),
        ("where", where_words(finding)),
        ("numbers", evidence),
        ("why", rule.explanation if rule is not None else ""),
        ("do", rule.remedy if rule is not None else ""),
    ]
    for label, text in parts:
        if text:
            yield textwrap.fill(
                text,
                width,
                initial_indent=f"  {label}".ljust(LABELS),
                subsequent_indent=" " * LABELS,
                break_on_hyphens=False,
                break_long_words=False,
            )
