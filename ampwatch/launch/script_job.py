"""Runs a training in a process of its own and stands for it on the screen's side.

The child runs the script as plain python would (`ampwatch.runner`). Records come over one pipe,
requests go over another, and everything the script and its children print comes over a third.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from ampwatch import controls, job
from ampwatch.controls import Request
from ampwatch.errors import RecordError, UsageError
from ampwatch.launch.child import ChildProcess
from ampwatch.log.mend import finish_log
from ampwatch.output import OutputBuffer
from ampwatch.record import Notice, Record, RunEnd, StepRecord, from_json
from ampwatch.runner.settings import Settings

INTERRUPTED = 128 + signal.SIGINT
INTERRUPT_AFTER = 0.6
KILL_AFTER = 1.4
"""Seconds after which a script that does not stop is interrupted, and killed: quitting must end
within two seconds."""
TEARDOWN_SECONDS = 5.0
"""How long a stopped script's interpreter may take to leave; with torch it is about one second."""


class ScriptJob:
    """One script, or ``MODULE:FUNCTION``, run in a child process.

    Args:
        target: path of a script, or ``MODULE:FUNCTION``.
        args: what the script finds in ``sys.argv`` after its name.
        settings: what ampwatch does to it. A log is continued when the job starts again.
    """

    def __init__(self, target: str, args: Sequence[str], settings: Settings) -> None:
        self.settings = settings
        self.output = OutputBuffer()
        self.error: str | None = None
        self._exit_code: int | None = None
        self._command = (target, *args)
        self._state = job.STARTING
        self._child: ChildProcess | None = None
        self._again = False
        self._half_line = b""
        self._damaged = 0
        self._steps = 0
        self._end: RunEnd | None = None
        self._end_came = 0.0
        self._stop_asked: float | None = None
        self._stop_sent = self._acknowledged = self._interrupted = self._killed = False

    @property
    def state(self) -> str:
        if self._stop_asked is None or self._state in job.ENDED:
            return self._state
        if self._end is not None and not self._again:
            return job.STOPPED  # the interpreter's own leaving is nothing to wait for
        return job.STOPPING

    @property
    def exit_code(self) -> int | None:
        return INTERRUPTED if self.state == job.STOPPED else self._exit_code

    @property
    def waiting_for(self) -> str | None:
        if self.state != job.STOPPING:
            return None
        if self._killed:
            return "Waiting for the system to end the script."
        if self._acknowledged:
            return "The script was told to stop and is finishing what it does."
        if self._interrupted:
            return "The script was interrupted and has not answered yet."
        return "Waiting for the running step to end."

    def start(self) -> None:
        """Raises UsageError when the system will not start another process."""
        self.output.clear()
        self._exit_code = self.error = None
        self._state = job.STARTING
        self._half_line = b""
        self._damaged = self._steps = 0
        self._end = self._stop_asked = None
        self._stop_sent = self._acknowledged = self._interrupted = self._killed = False
        self._child = ChildProcess(self._command, self.settings)

    def poll(self) -> list[Record]:
        child = self._child
        if child is None:
            return []
        self._push_stop(child)
        child.send()
        over = child.over()
        records = self._take(child)
        if over:
            child.close()
            records += self._take(child)
            records += self._finish(child.returncode or 0)
            self._child = None
        if self._again:
            records = []  # of a run that is to be forgotten
            if over:
                records += self._begin_again()
        return records

    def send(self, request: Request) -> None:
        if self._child is not None:
            self._child.send(request.to_json().encode() + b"\n")

    def stop(self) -> None:
        # Only noted here: a signal handler may call this at any moment. poll() acts on it.
        self._again = False
        if self._stop_asked is None and self._child is not None and self._end is None:
            self._stop_asked = time.monotonic()

    def kill(self) -> None:
        if self._child is not None:
            self._stop_asked = self._stop_asked or time.monotonic()
            self._killed = True
            self._child.kill()

    def restart(self) -> None:
        if self._child is None:
            self.start()
        elif self._again:
            self.kill()  # asked twice: it does not stop by itself
        else:
            self.stop()
            self._again = True

    def close(self) -> list[Record]:
        """Stop what still runs and wait until it has ended; the last records it sent.

        The only call that waits: less than two seconds for a script that does not listen, longer
        for one that has heard and is saving.
        """
        self._again = False
        records: list[Record] = []
        while self._child is not None:
            self.stop()
            records += self.poll()
            time.sleep(0.01)
        return records

    def _begin_again(self) -> list[Record]:
        self._again = False
        try:
            self.start()
        except UsageError as error:
            self._state, self.error, self._exit_code = job.FAILED, str(error), error.exit_code
            return [RunEnd(job.FAILED, 0, str(error))]
        return []

    def _push_stop(self, child: ChildProcess) -> None:
        if self._stop_asked is None or child.returncode is not None:
            return
        if not self._stop_sent:
            self._stop_sent = True
            self.send(Request(controls.STOP.name))
        waited = time.monotonic() - self._stop_asked
        self._acknowledged |= self._interrupted and child.heard()
        if self._killed:
            return
        if self._end is not None:
            if time.monotonic() - self._end_came >= TEARDOWN_SECONDS:
                self.kill()
        elif self._acknowledged:
            return
        elif waited >= KILL_AFTER:
            self.kill()
        elif waited >= INTERRUPT_AFTER and not self._interrupted:
            self._interrupted = True
            child.interrupt()

    def _take(self, child: ChildProcess) -> list[Record]:
        sent, printed = child.take()
        self.output.feed(printed)
        *lines, self._half_line = (self._half_line + sent).split(b"\n")
        records: list[Record] = []
        for line in lines:
            try:
                record = from_json(line.decode("utf-8", "replace"))
            except RecordError as error:
                self._damaged += 1
                if self._damaged == 1:
                    records.append(Notice(f"A record arrived damaged and was left out: {error}"))
                continue
            if isinstance(record, StepRecord):
                self._steps = record.step + 1
                self._state = job.RUNNING
            elif isinstance(record, Notice):
                self._acknowledged |= record.knob == controls.STOP.name and not record.refused
            elif isinstance(record, RunEnd):
                self._end, self._end_came = record, time.monotonic()
            records.append(record)
        return records

    def _finish(self, returncode: int) -> list[Record]:
        """Note how the script ended; its end record, if it could not write one itself."""
        self.output.close()
        said = self._end
        self._state, self.error = _verdict(returncode, said, self._stop_asked is not None)
        self._exit_code = returncode if returncode >= 0 else 128 - returncode
        if said is not None:
            return []
        end = RunEnd(self._state, self._steps, self.error)
        if self.settings.log is not None:
            try:
                finish_log(self.settings.log, end)
            except OSError as error:
                return [Notice(f"The log could not be finished: {error}"), end]
        return [end]


def _verdict(returncode: int, said: RunEnd | None, stop_asked: bool) -> tuple[str, str | None]:
    """How a script ended, and why it failed, from its exit status and its own last word."""
    finished = said is not None and said.status == job.FINISHED
    if stop_asked and not (returncode == 0 and finished):
        return job.STOPPED, None
    if returncode < 0:
        return job.FAILED, f"killed by signal {-returncode} ({_signal_name(-returncode)})"
    if said is not None and said.status == job.STOPPED:
        return job.STOPPED, None
    if returncode == 0:
        return job.FINISHED, None
    return job.FAILED, (said.error if said is not None else None) or f"exit code {returncode}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
