"""The front end without a screen: progress on stderr, a summary at the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TextIO

from ampwatch import job as job_states
from ampwatch.headless.progress import Progress
from ampwatch.headless.summary import summary_text
from ampwatch.job import Job
from ampwatch.record import strict
from ampwatch.session import PUMP_RECORDS, Session

PAUSE_SECONDS = 0.05
INTERRUPTED = 128 + signal.SIGINT


def run_headless(
    job: Job,
    session: Session,
    *,
    json_output: bool = False,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    total: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Start a job, follow it to its end and say how it went; returns the exit code.

    Ctrl+C asks the training to stop at the end of its step; a second one kills it.

    Args:
        job: not started yet; ``session`` takes its records from it.
        json_output: print one JSON object on ``stdout`` in place of the text on ``stderr``; what
            the script prints then goes to ``stderr`` too.
        total: how many steps there will be, where the caller knows it.
    """
    out = stdout if stdout is not None else sys.stdout
    err = stderr if stderr is not None else sys.stderr
    progress = Progress(err)
    passed_on = _PassOn(err if json_output else out, progress)
    job.output.echo = passed_on.write
    with _stop_signals(job, progress) as asked:
        try:
            job.start()
            while True:
                change = session.pump()
                for notice in change.notices:
                    if notice.text:
                        progress.say(f"ampwatch: {notice.text}")
                progress.show(session.run, total)
                if change.records >= PUMP_RECORDS or session.backlog:
                    continue
                if not change and job.state in job_states.ENDED:
                    break
                sleep(PAUSE_SECONDS)
        finally:
            job.output.echo = None
            progress.end()
    if json_output:
        text = json.dumps(strict(session.summary()), allow_nan=False)
        _write(out, text + "\n")
    else:
        passed_on.finish_line()
        _write(err, summary_text(session) + "\n")
    if asked and asked[0] == signal.SIGTERM:
        return 128 + signal.SIGTERM
    return _exit_code(job)


def _exit_code(job: Job) -> int:
    if job.state == job_states.STOPPED:
        return INTERRUPTED
    if job.exit_code is not None:
        return job.exit_code
    return 0 if job.state == job_states.FINISHED else 1


class _PassOn:
    """Hands the script's output on as it comes, without it running into the progress line."""

    def __init__(self, stream: TextIO, progress: Progress) -> None:
        self._stream = stream
        self._progress = progress
        self._broken = False

    def write(self, data: bytes) -> None:
        if self._broken or not data:
            return
        self._progress.clear()
        try:
            buffer = getattr(self._stream, "buffer", None)
            if buffer is not None:
                self._stream.flush()
                buffer.write(data)
                buffer.flush()
            else:
                self._stream.write(data.decode("utf-8", "replace"))
                self._stream.flush()
        except (OSError, ValueError):
            # Whoever read it has gone (``| head``): the training goes on all the same.
            self._broken = True
            silence(self._stream)
        self._progress.line_open = not data.endswith(b"\n")

    def finish_line(self) -> None:
        """The summary begins on a line of its own."""
        if self._progress.line_open:
            self.write(b"\n")


@contextlib.contextmanager
def _stop_signals(job: Job, progress: Progress) -> Iterator[list[int]]:
    """While inside, Ctrl+C and SIGTERM stop the job; gives the list of signals that came."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked  # signals are the main thread's affair
        return

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) == 1:
            job.stop()
            progress.later("ampwatch: stopping at the end of this step; once more to force it")
        else:
            job.kill()
            progress.later("ampwatch: ended by force")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield asked
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _write(stream: TextIO, text: str) -> None:
    """Write text whatever the stream's encoding; a reader that has gone is no error of ours."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError):
        silence(stream)


def silence(stream: TextIO) -> None:
    """Keep the interpreter from complaining at exit about a stream nobody reads."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
