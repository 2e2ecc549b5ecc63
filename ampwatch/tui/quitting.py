"""Leaving: the script is asked to stop, waited for, and left behind if it will not listen."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

from ampwatch.job import Job, runs

PATIENCE = 1.9
"""Seconds from the first request to leave until the screen is given back, whatever happens."""
POLL = 0.05
"""Seconds between two looks at a script that was asked to stop."""


class Quitting:
    """Knows whether somebody wants to leave, and whether it is time to."""

    def __init__(self, job: Job | None) -> None:
        self._job = job
        self._since: float | None = None

    @property
    def asked(self) -> bool:
        return self._since is not None

    def ask(self, now: float) -> None:
        """The key was pressed: the first time politely, after that for good."""
        if self._since is None:
            self._since = now
            if runs(self._job):
                assert self._job is not None
                self._job.stop()
        elif self._job is not None and runs(self._job):
            self._job.kill()

    def due(self, now: float) -> bool:
        """Whether the screen can be given back now."""
        if self._since is None:
            return False
        return not runs(self._job) or now - self._since >= PATIENCE

    def note(self) -> str:
        """What the status says meanwhile."""
        if self._since is None or not runs(self._job):
            return ""
        assert self._job is not None
        waits = self._job.waiting_for or "Waiting for the script to stop."
        return f"{waits} Press q again to end it at once."


def on_hangup(leave: Callable[[int], None]) -> None:
    """Call ``leave`` with the signal's number when the terminal goes or somebody ends us."""
    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None:
            # Not in a thread that is not the main one, and not on Windows.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, leave, int(number))
