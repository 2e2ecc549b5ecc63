"""Which finding the event line tells: a new one stays for a while, the worst one at the end."""

from __future__ import annotations

from collections.abc import Sequence

from ampwatch.rules import SEVERITIES, Finding
from ampwatch.rules.telling import troubles
from ampwatch.run import Run
from ampwatch.tui.panels.findings import identity

NEWS_SECONDS = 15.0
"""Long enough to be read and acted on, short enough for plain events to be seen again."""


class News:
    """Remembers what has been told already."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._told: set[tuple[str, str | None, str | None]] = set()
        self._latest: Finding | None = None
        self._until = 0.0

    def choose(self, run: Run, findings: Sequence[Finding], now: float) -> Finding | None:
        """The error or warning to tell now, in its latest words; None: tell the plain events.

        Args:
            findings: worst first, as a session keeps them.
            now: seconds of a clock that only goes forward.
        """
        if run is not self._run:
            self._run, self._latest = run, None
            self._told.clear()
        bad = troubles(findings)
        known = {identity(finding): finding for finding in reversed(bad)}
        shown = None if self._latest is None else known.get(identity(self._latest))
        fresh = [finding for finding in bad if identity(finding) not in self._told]
        if fresh:
            self._told.update(map(identity, fresh))
            if shown is None or now >= self._until or _rank(fresh[0]) <= _rank(shown):
                shown, self._until = fresh[0], now + NEWS_SECONDS
        self._latest = shown
        if run.end is not None:
            return bad[0] if bad else None
        return shown if now < self._until else None


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)
