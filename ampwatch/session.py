"""Takes what has come, adds it to the run, checks the rules, says what changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from ampwatch.controls import Controls
from ampwatch.record import Notice, Record, RunEnd, RunInfo
from ampwatch.rules import RULES, SEVERITIES, Finding, Rule
from ampwatch.run import Run
from ampwatch.run.events import Event

PUMP_RECORDS = 5000
"""Most records of one pump: a screen that opens a long log must not freeze."""


class Source(Protocol):
    """Where records come from: a live job, a growing log, a whole one."""

    def poll(self) -> list[Record]:
        """What has come since the last call; never waits."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one pump brought."""

    records: int = 0
    events: list[Event] = field(default_factory=list)
    """New events, and events that have grown."""
    notices: list[Notice] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Findings that are new, or have been seen again."""
    ended: bool = False
    """The run's end was among the records."""
    renewed: bool = False
    """A new run began: ``session.run`` is another object than before."""

    def __bool__(self) -> bool:
        return bool(self.records or self.renewed)


class Session:
    """One source, its run and what the rules find in it. Every front end loops around pump()."""

    def __init__(
        self,
        source: Source,
        controls: Controls | None = None,
        rules: Sequence[Rule] = RULES,
    ) -> None:
        self.source = source
        self.controls = controls if controls is not None else Controls()
        self.rules = rules
        self.run = Run()
        self.findings: list[Finding] = []
        """What the rules find now, worst first."""
        self._waiting: deque[Record] = deque()
        self._renewed = False

    @property
    def backlog(self) -> int:
        """Records that have come and wait for the next pump."""
        return len(self._waiting)

    def pump(self, most: int = PUMP_RECORDS) -> Change:
        """Take in at most ``most`` of the records that have come."""
        waiting = self._waiting
        if len(waiting) < most:
            waiting.extend(self.source.poll())
        batch = list(islice(waiting, most))
        if not batch and not self._renewed:
            return Change()
        notices: list[Notice] = []
        ended = False
        for record in batch:
            waiting.popleft()
            if isinstance(record, Notice):
                notices.append(record)
                if record.knob is not None:
                    self.controls.answered(record.knob, record.value)
            elif isinstance(record, RunInfo):
                if self._begins_anew(record):
                    self._begin()
                    ended = False
            elif isinstance(record, RunEnd):
                ended = True
            self.run.add(record)
        change = Change(
            len(batch), self.run.events.drain(), notices, self._check(), ended, self._renewed
        )
        self._renewed = False
        return change

    def restart(self, source: Source | None = None) -> None:
        """Forget the run: another one begins, from this source where one is given."""
        if source is not None:
            self.source = source
        self._waiting.clear()
        self.controls.reset()
        self._begin()

    def summary(self) -> dict[str, Any]:
        """The run and its findings in one object."""
        return {**self.run.summary(), "findings": [found.as_json() for found in self.findings]}

    def rule_of(self, finding: Finding) -> Rule | None:
        """The rule that found it, with its explanation and remedy."""
        return next((rule for rule in self.rules if rule.id == finding.rule), None)

    def _begins_anew(self, info: RunInfo) -> bool:
        """A log can hold several runs, one after the other; the last one is shown."""
        known = self.run.info
        return known is not None and known.started != info.started and self.run.steps > 0

    def _begin(self) -> None:
        self.run = Run()
        self.findings = []
        self._renewed = True

    def _check(self) -> list[Finding]:
        """Ask every rule; returns what is new."""
        found = [finding for rule in self.rules for finding in rule.check(self.run)]
        found.sort(key=_worst_first)
        told = set(map(_sighting, self.findings))
        fresh = [finding for finding in found if _sighting(finding) not in told]
        self.findings = found
        return fresh


def _sighting(finding: Finding) -> tuple[object, ...]:
    """What grows when it is seen again; shares in its words change with every step."""
    return (
        finding.rule, finding.severity, finding.tensor, finding.module,
        finding.first_step, finding.last_step, finding.count,
    )  # fmt: skip


def _worst_first(finding: Finding) -> tuple[int, int]:
    return SEVERITIES.index(finding.severity), finding.first_step or 0
