"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ampwatch.run import Run

SEVERITIES = ("error", "warning", "info")
"""Worst first. error: the training is wrong; warning: it works less well than it should; info:
normal, worth knowing."""


class Sighting(Protocol):
    """Where something was seen: a span of a run, or a fact in it."""

    @property
    def count(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a rule recognised in a run."""

    rule: str
    severity: str
    message: str
    """What happened, with the numbers, in one or two sentences."""
    first_step: int | None = None
    last_step: int | None = None
    count: int = 1
    """How often it was seen."""
    tensor: str | None = None
    module: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """The numbers it rests on."""

    @classmethod
    def over(
        cls,
        seen: Sighting,
        rule: str,
        severity: str,
        message: str,
        *,
        tensor: str | None = None,
        module: str | None = None,
        **evidence: Any,
    ) -> Finding:
        """A finding about all the places where something was seen."""
        return cls(
            rule, severity, message, seen.first, seen.last, seen.count, tensor, module, evidence
        )

    @classmethod
    def at_the_end(
        cls, run: Run, rule: str, severity: str, message: str, **evidence: Any
    ) -> Finding:
        """A finding about what ended a run, in the step after its last one."""
        return cls(rule, severity, message, run.steps, run.steps, evidence=evidence)

    def as_json(self) -> dict[str, Any]:
        """The finding as ``--json`` prints it; evidence that is not known is left out."""
        body: dict[str, Any] = {
            "rule": self.rule,
            "severity": self.severity,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "count": self.count,
            "message": self.message,
            "evidence": {k: each for k, each in self.evidence.items() if each is not None},
        }
        if self.tensor is not None:
            body["tensor"] = self.tensor
        if self.module is not None:
            body["module"] = self.module
        return body


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be recognised in a run, with its words."""

    id: str
    severity: str
    summary: str
    """When it is recognised, in one line."""
    explanation: str
    """Why it happens and what it means."""
    remedy: str
    """What to do."""
    check: Callable[[Run], Iterable[Finding]]
    """Reads the run alone. It is called again and again while the run grows, and says each time
    everything it finds: a finding that no longer holds is simply not said again."""
    source: str = ""
    """Where it is described: a paper, documentation, a report, or how it is derived."""
    before: str = ""
    """The mistake in a few lines of code, where an example helps."""
    after: str = ""
    """The same lines put right."""

    def as_json(self) -> dict[str, str]:
        """The rule's words, as ``ampwatch rules --json`` prints them."""
        return {
            "id": self.id,
            "severity": self.severity,
            "summary": self.summary,
            "explanation": self.explanation,
            "remedy": self.remedy,
            "source": self.source,
            "before": self.before,
            "after": self.after,
        }


def ending(run: Run) -> str | None:
    """The error that ended a run, in torch's words."""
    return None if run.end is None else run.end.error
