"""What a front end knows of the training it shows: a job that can be watched and stopped."""

from __future__ import annotations

from typing import Protocol

from ampwatch.controls import Request
from ampwatch.output import OutputBuffer
from ampwatch.record import Record

STARTING = "starting"
RUNNING = "running"
STOPPING = "stopping"
FINISHED = "finished"
FAILED = "failed"
STOPPED = "stopped"
ENDED = frozenset({FINISHED, FAILED, STOPPED})


class Job(Protocol):
    """A training that runs somewhere else. Nothing here ever blocks."""

    output: OutputBuffer

    @property
    def state(self) -> str:
        """ "starting" (no step yet), "running", "stopping", "finished", "failed" or "stopped"."""

    @property
    def exit_code(self) -> int | None:
        """What the command line hands on: 0 done, 130 stopped, otherwise the script's own."""

    @property
    def error(self) -> str | None:
        """Why it failed: the last line of the traceback, or the signal that killed it."""

    @property
    def waiting_for(self) -> str | None:
        """While stopping: a sentence that says what has not come to an end yet."""

    def start(self) -> None: ...

    def poll(self) -> list[Record]:
        """The records that have come; call it often, it also takes in the output."""

    def send(self, request: Request) -> None:
        """Ask the training to turn a knob."""

    def stop(self) -> None:
        """Ask the script to end; what does not listen is interrupted, then killed."""

    def kill(self) -> None:
        """End it now, whatever it is doing."""

    def restart(self) -> None:
        """Stop it if it runs, and start it anew."""


def runs(job: Job | None) -> bool:
    """Whether there is a training that has not ended."""
    return job is not None and job.state not in ENDED
