"""Running small scripts as jobs, for the tests about jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ampwatch import job as states
from ampwatch.launch import ScriptJob
from ampwatch.record import Notice, Record, RunEnd
from ampwatch.runner.settings import Settings

PATIENCE = 60.0
"""Seconds before a test gives up; on a busy machine everything may take its time."""


@dataclass
class Ran:
    """A job and everything that came from it."""

    job: ScriptJob
    records: list[Record] = field(default_factory=list)

    def pump(self, until: Callable[[], object]) -> None:
        """Take in what comes until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not until():
            self.records += self.job.poll()
            if time.monotonic() > deadline:
                self.job.kill()
                raise AssertionError(f"still {self.job.state}: {self.lines}")
            time.sleep(0.005)

    def to_the_end(self) -> Ran:
        self.pump(lambda: self.job.state in states.ENDED)
        return self

    def until_printed(self, line: str) -> None:
        self.pump(lambda: line in self.lines)

    @property
    def lines(self) -> list[str]:
        return self.job.output.tail(100_000)

    @property
    def end(self) -> RunEnd:
        ends = [record for record in self.records if isinstance(record, RunEnd)]
        assert len(ends) == 1, self.records
        return ends[0]

    @property
    def notices(self) -> list[str]:
        return [record.text for record in self.records if isinstance(record, Notice)]


def write(folder: Path, source: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def begin(target: Path | str, *args: str, **settings: Any) -> Ran:
    ran = Ran(ScriptJob(str(target), args, Settings(**{"name": "test", **settings})))
    ran.job.start()
    return ran


def run(target: Path | str, *args: str, **settings: Any) -> Ran:
    return begin(target, *args, **settings).to_the_end()


def plain(target: Path | str, *args: str) -> tuple[list[str], int]:
    """The same script under plain python: its lines and its exit code."""
    done = subprocess.run(
        [sys.executable, str(target), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        check=False,
    )
    code = done.returncode
    return done.stdout.splitlines(), code if code >= 0 else 128 - code


TAKES_STEPS = """
    import time
    from ampwatch import host
    from ampwatch.record import StepRecord

    here = host.current()
    def train(steps, seconds=0.01):
        for step in range(steps):
            time.sleep(seconds)
            here.put(StepRecord(step, here.time(), loss=1.0 / (step + 1)))
            here.boundary(lambda request: None)
"""
