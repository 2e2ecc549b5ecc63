"""One variant of the loop, running in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ampwatch import controls, job
from ampwatch.compare.figures import FAILED, FINISHED, IMPOSSIBLE, STOPPED, Ended
from ampwatch.compare.track import Track
from ampwatch.compare.variants import Variant
from ampwatch.controls import Request
from ampwatch.errors import UsageError
from ampwatch.launch import ScriptJob
from ampwatch.record import Record
from ampwatch.runner.settings import Settings
from ampwatch.session import Session


class Member:
    """A job, its records and what is told to it.

    Records are only counted while others are being timed; the rules look at them when nobody is.
    """

    def __init__(
        self, variant: Variant, target: str, args: Sequence[str], settings: Settings
    ) -> None:
        self.variant = variant
        self.track = Track()
        self.job = ScriptJob(target, args, settings)
        self.impossible: str | None = None
        """Why the loop cannot be run this way, once that is known."""
        self._error: str | None = None
        self._over = self._started = False
        self._waiting: list[Record] = []
        self._session = Session(self)

    @property
    def alive(self) -> bool:
        return not self._over

    def start(self, steps: int) -> None:
        """Start it; it waits after so many steps."""
        self._started = True
        try:
            self.job.start()
        except UsageError as error:
            self._error, self._over = str(error), True
            return
        # The first boundary comes after the first step: one less than the steps is to be granted.
        self._ask(controls.STEP, max(steps - 1, 1))

    def go(self, steps: int) -> None:
        """Let it take so many steps, which are timed."""
        self.track.begin_block(steps)
        self._ask(controls.STEP, steps)

    def release(self) -> None:
        """Let it go on to its end."""
        self._ask(controls.PAUSE, False)

    def take(self) -> None:
        """Take in what has come."""
        if self._over:
            return
        records = self.job.poll()
        for record in records:
            self.track.add(record)
        self._waiting += records
        if self.job.state in job.ENDED:
            self._over = True
            self.track.ended()

    def poll(self) -> list[Record]:
        """For the session: what has been taken in since the last time."""
        records, self._waiting = self._waiting, []
        return records

    def digest(self) -> None:
        """Add what has come to the run, and ask the rules."""
        while self._session.pump():
            pass

    def give_up(self, why: str) -> None:
        """It is not possible to run the loop this way."""
        self.impossible = why
        self.stop()

    def stop(self) -> None:
        """End it, as somebody does who leaves."""
        self.job.stop()
        self._over |= not self._started

    def ended(self) -> Ended:
        """The run as it is now."""
        self.digest()
        run = self._session.run
        return Ended(
            self.variant,
            self.track,
            self._status(),
            self.impossible or self._error or self.job.error,
            run.final_scale(),
            tuple(self._session.findings),
        )

    def _status(self) -> str:
        if self.impossible is not None:
            return IMPOSSIBLE
        if self._error is not None or self.job.state == job.FAILED:
            return FAILED
        return FINISHED if self.job.state == job.FINISHED else STOPPED

    def _ask(self, knob: controls.Knob, value: controls.Value) -> None:
        self.job.send(Request(knob.name, value))
