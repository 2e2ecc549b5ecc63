"""A script's process and the three pipes to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ampwatch.errors import UsageError
from ampwatch.launch.intake import Intake, wide_pipe
from ampwatch.runner.settings import Child, Settings

QUIET_SECONDS = 0.25
LINGER_SECONDS = 1.0
"""How long a script's own children may hold the output open after it: until they are quiet, at
most so long."""
UNSENT_BYTES = 64 * 1024

# `-m` would put the working directory first on the path, where a file named like a module of the
# standard library may lie, before the runner could do anything about it.
_BOOTSTRAP = (
    "import sys; del sys.path[0]; sys.path.append({!r}); "
    "import ampwatch.runner.main as r; sys.path.pop(); r.main()"
)


class ChildProcess:
    """`ampwatch.runner` at work on one script. Nothing here waits for it.

    Args:
        command: the script, or ``MODULE:FUNCTION``, and its arguments.
        settings: what the runner is told.

    Raises:
        UsageError: the system will not start another process.
    """

    def __init__(self, command: Sequence[str], settings: Settings) -> None:
        records, child_records = wide_pipe()
        output, child_output = wide_pipe()
        child_requests, requests = os.pipe()
        heard, child_heard = os.pipe()
        child = Child(settings, child_records, child_requests, child_heard)
        bootstrap = _BOOTSTRAP.format(str(Path(__file__).parents[2]))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", bootstrap, child.to_json(), *command],
                stdin=subprocess.DEVNULL,
                stdout=child_output,
                stderr=child_output,
                pass_fds=(child_records, child_requests, child_heard),
                start_new_session=True,  # Ctrl+C in the terminal is for us to deal with
            )
        except (OSError, ValueError) as error:
            for fd in (records, output, requests, heard):
                os.close(fd)
            raise UsageError(f"the script's process cannot be started: {error}") from None
        finally:
            for fd in (child_records, child_output, child_requests, child_heard):
                os.close(fd)
        os.set_blocking(requests, False)
        os.set_blocking(heard, False)
        self._records, self._output, self._requests = records, output, requests
        self._heard = heard
        self._intake = Intake(records, output)
        self._unsent = b""
        self._gone_at: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the signal that killed it, once that is known."""
        return self._process.returncode

    def send(self, line: bytes = b"") -> None:
        """Send what the pipe takes; the rest goes out with the next call."""
        if len(self._unsent) < UNSENT_BYTES:  # nobody presses so many keys in one step
            self._unsent += line
        if not self._unsent or self._requests < 0:
            return
        try:
            self._unsent = self._unsent[os.write(self._requests, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # the script has closed it, or is gone
            self._unsent = b""

    def take(self) -> tuple[bytes, bytes]:
        """The bytes of records and of output that have come since the last call."""
        return self._intake.take(self._records), self._intake.take(self._output)

    def over(self) -> bool:
        """Whether the process has ended and everything it wrote has arrived."""
        if self._process.poll() is None:
            return False
        now = time.monotonic()
        self._gone_at = self._gone_at or now
        quiet = now - max(self._gone_at, self._intake.last_arrival) >= QUIET_SECONDS
        return self._intake.ended or quiet or now - self._gone_at >= LINGER_SECONDS

    def interrupt(self) -> None:
        """Press Ctrl+C for the script."""
        self._process.send_signal(signal.SIGINT)

    def heard(self) -> bool:
        """Whether an interrupt has been raised in the script since the last call."""
        try:
            return self._heard >= 0 and bool(os.read(self._heard, 64))
        except BlockingIOError:
            return False

    def kill(self) -> None:
        """End the script and the children it has not sent into sessions of their own."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the pipes of a process that is over; what has arrived can still be taken."""
        self._intake.close()
        if self._requests >= 0:
            os.close(self._requests)
            os.close(self._heard)
            self._requests = self._heard = -1
