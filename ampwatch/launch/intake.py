"""Takes what arrives on pipes, in a thread of its own, so that neither end ever waits.

The screen may be busy drawing while the training writes; the training may write more than the
screen can take. What arrives is kept here in bounded memory; beyond that the pipe fills, which is
the writer's sign to thin out (records) or to wait (printed text, as with a slow terminal).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import threading
import time
from collections import deque

READ_BYTES = 256 * 1024
HELD_BYTES = 1024 * 1024
"""A pipe of which so much has not been taken yet is not read any further."""
LAST_BYTES = 4 * HELD_BYTES
"""At most so much is read after the end, from a pipe that somebody goes on writing to."""
PIPE_BYTES = 1024 * 1024
REST_SECONDS = 0.02
"""Between two reads. A loop writes thousands of records a second; waking for each would cost
both processes more than the records do."""


class _Pipe:
    """One pipe's read end and what has come out of it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.chunks: deque[bytes] = deque()
        self.arrived = 0  # counted by the thread alone
        self.taken = 0  # counted by the taker alone
        self.ended = False
        os.set_blocking(fd, False)

    @property
    def full(self) -> bool:
        return self.arrived - self.taken >= HELD_BYTES

    def read(self) -> bool:
        """Read once; whether there may be more."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self.arrived += len(data)
            self.chunks.append(data)
        else:
            self.ended = True
        return bool(data)


class Intake:
    """Reads pipes until they end or :meth:`close` is called; then closes them.

    Args:
        fds: read ends of pipes, which belong to the intake from now on.
    """

    def __init__(self, *fds: int) -> None:
        self._pipes = {fd: _Pipe(fd) for fd in fds}
        self._woken, self._wake = os.pipe()
        self._closing = False
        self.last_arrival = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="ampwatch-intake", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether every pipe has been closed by all who could write to it."""
        return all(pipe.ended for pipe in self._pipes.values())

    def take(self, fd: int) -> bytes:
        """Everything that has come through this pipe since the last time."""
        pipe = self._pipes[fd]
        data = b"".join([pipe.chunks.popleft() for _ in range(len(pipe.chunks))])
        pipe.taken += len(data)
        return data

    def close(self) -> None:
        """Read what is there and no more; what was read can still be taken."""
        if not self._closing:
            self._closing = True
            os.close(self._wake)
            self._thread.join()

    def _run(self) -> None:
        pipes = self._pipes.values()
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            watched: set[int] = set()
            while not self._closing and not self.ended:
                wanted = {pipe.fd for pipe in pipes if not pipe.ended and not pipe.full}
                for fd in watched - wanted:
                    selector.unregister(fd)
                for fd in wanted - watched:
                    selector.register(fd, selectors.EVENT_READ)
                watched = wanted
                held = any(pipe.full for pipe in pipes)
                for key, _ in selector.select(REST_SECONDS if held else None):
                    if key.fd != self._woken and self._pipes[key.fd].read():
                        self.last_arrival = time.monotonic()
                time.sleep(REST_SECONDS)
        for pipe in pipes:
            most = pipe.arrived + LAST_BYTES
            while not pipe.ended and pipe.arrived < most and pipe.read():
                pass
            os.close(pipe.fd)
        os.close(self._woken)


def wide_pipe() -> tuple[int, int]:
    """A pipe that holds as much as the system lets it: read end, write end."""
    read, write = os.pipe()
    with contextlib.suppress(AttributeError, OSError):  # neither macOS nor an older kernel
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read, write
