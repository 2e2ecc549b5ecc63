"""The log of a run: written so that a killed process or a full disk costs as little as possible."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ampwatch.errors import LogError
from ampwatch.record import Notice, Record, StepRecord, to_json

FLUSH_SECONDS = 0.1
"""A kill costs at most so much of what was recorded; a write takes some microseconds."""
WAITING_BYTES = 64 * 1024 * 1024
"""So much is kept in memory while the disk takes nothing; beyond it ordinary steps are let go."""


def _nobody(text: str) -> None:
    """Nobody asked to be told."""


class LogWriter:
    """Appends records to a log.

    Written out ten times a second, and at once for a skipped step and for everything that is not a
    step. After the log is open nothing here raises into the training: what cannot be written stays
    in memory and is tried again. A forked copy of the process writes nothing.

    Args:
        path: the file; its folders are made. An existing log is continued: a reader shows the
            last run in it.
        report: is told in one sentence when writing fails, and when it works again.

    Raises:
        LogError: the file cannot be opened for writing.
    """

    def __init__(
        self,
        path: Path | str,
        report: Callable[[str], None] = _nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = Path(path)
        self.lost = 0
        """Ordinary steps that were let go because the disk took nothing for too long."""
        self.trouble: str | None = None
        """Why nothing can be written just now."""
        self._report = report
        self._clock = clock
        self._pid = os.getpid()
        self._buffer = bytearray()
        self._due = clock() + FLUSH_SECONDS
        self._uncounted = False
        self._busy = False
        self._closed = False
        self._fd = -1
        self._end = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise LogError(f"cannot write the log {self.path}: {_reason(error)}") from None

    def put(self, record: Record, line: str | None = None) -> None:
        """Add a record; ``line`` is its JSON where that has been made already."""
        if self._closed or isinstance(record, Notice) or os.getpid() != self._pid:
            return
        ordinary = isinstance(record, StepRecord) and not record.skipped
        if ordinary and self.trouble and len(self._buffer) >= WAITING_BYTES:
            self.lost += 1
            return
        self._buffer += ((to_json(record) if line is None else line) + "\n").encode()
        if ordinary:
            if self._clock() >= self._due:
                self.flush()
        elif self.trouble is None or self._clock() >= self._due:
            self.flush()

    def flush(self) -> bool:
        """Write out what waits; whether all of it was written."""
        if self._closed or self._busy or os.getpid() != self._pid:
            return False
        self._busy = True
        try:
            self._write()
        except OSError as error:
            self._failed(_reason(error))
        else:
            self._worked()
        finally:
            self._busy = False
            self._due = self._clock() + FLUSH_SECONDS
        return self.trouble is None

    def close(self) -> None:
        """Write out what waits and let the file go; any number of times."""
        if self._closed or os.getpid() != self._pid:
            return
        if not self.flush() and self._buffer:
            self._report(
                f"the log {self.path} is incomplete: its last {len(self._buffer):,} bytes "
                f"could not be written ({self.trouble})"
            )
        self._closed = True
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._fd = os.open(self.path, flags, 0o666)
        self._end = os.lseek(self._fd, 0, os.SEEK_END)
        if self._end > 0 and os.pread(self._fd, 1, self._end - 1) != b"\n":
            # The run before was killed in the middle of a line: ours begins on a new one.
            self._buffer[:0] = b"\n"

    def _write(self) -> None:
        if self._fd >= 0 and os.fstat(self._fd).st_nlink == 0:
            # Somebody removed the file; what was written before is gone with it.
            os.close(self._fd)
            self._fd = -1
        if self._fd < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        if self._uncounted:
            # An interrupt came between writing and counting: the file knows how much went out.
            self._count(os.lseek(self._fd, 0, os.SEEK_CUR) - self._end)
        while self._buffer:
            self._uncounted = True
            written = os.write(self._fd, self._buffer)
            self._count(written)

    def _count(self, written: int) -> None:
        if 0 < written <= len(self._buffer):
            del self._buffer[:written]
            self._end += written
        self._uncounted = False

    def _failed(self, why: str) -> None:
        first, self.trouble = self.trouble is None, why
        if first:
            self._report(
                f"the log {self.path} cannot be written just now ({why}); "
                "what is recorded waits in memory"
            )

    def _worked(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            lost = f", but {self.lost:,} ordinary steps are missing" if self.lost else ""
            self._report(f"the log {self.path} is written again{lost}")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
