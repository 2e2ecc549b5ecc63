"""The training side's end of the pipe to the screen: never blocks the loop, never loses a skipped
step, and counts what it had to thin out."""

from __future__ import annotations

import os
import select
import time
from collections import deque

BACKLOG_LINES = 20_000
"""At 250 bytes a record: 5 MB, some seconds of the fastest loop while the screen is busy."""


class Feed:
    """Lines for another process, written as fast as the pipe takes them.

    Args:
        fd: the write end of a pipe; it is made non-blocking.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._begun = b""  # the rest of a line of which a part has gone out
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._ordinary = 0  # of those that wait, how many may be thinned
        self.thinned = 0
        self.closed = False

    def put(self, line: str, *, keep: bool) -> None:
        """Send a line now, or as soon as there is room; ``keep`` lines are never thinned."""
        if self.closed:
            return
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        if not self._begun and not self._waiting:
            self._begun = data
        else:
            self._waiting.append((data, keep))
            if not keep:
                self._ordinary += 1
                if self._ordinary >= BACKLOG_LINES:
                    self._thin()
        self.flush()

    def flush(self) -> bool:
        """Write what the pipe takes; whether everything has gone out."""
        while not self.closed:
            if not self._begun:
                if not self._waiting:
                    return True
                self._begun, keep = self._waiting.popleft()
                self._ordinary -= not keep
            try:
                self._begun = self._begun[os.write(self._fd, self._begun) :]
            except BlockingIOError:
                return False
            except OSError:  # nobody reads any more
                self.closed = True
        return True

    def close(self, timeout: float = 2.0) -> None:
        """Give the reader a last chance to take what waits."""
        deadline = time.monotonic() + timeout
        while not self.flush() and (left := deadline - time.monotonic()) > 0:
            select.select([], [self._fd], [], left)
        self.closed = True

    def _thin(self) -> None:
        """Drop every second line that may go, so that what stays still spans the whole wait."""
        kept: deque[tuple[bytes, bool]] = deque()
        drop = False
        for data, keep in self._waiting:
            if keep:
                kept.append((data, keep))
                continue
            drop = not drop
            if drop:
                self.thinned += 1
                self._ordinary -= 1
            else:
                kept.append((data, keep))
        self._waiting = kept
