"""Reads logs, whole or growing; lines that cannot be read are counted, not fatal."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ampwatch.errors import LogError, RecordError
from ampwatch.log.ranks import RankMerger, rank_files
from ampwatch.record import Notice, Record, from_json
from ampwatch.words import count_words

READ_BYTES = 1 << 20
"""Read in one go: about two thousand records, so that a screen stays awake."""
LINE_BYTES = 1 << 26
"""A longer line is no record: a file without line feeds must not fill the memory."""
TAIL_BYTES = 1024
LATE_SECONDS = 10.0
"""A rank that has been silent for so long is not waited for while the others go on."""


class _LogFile:
    """One file, read piece by piece from where the last piece ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = 0
        self.bad_lines = 0
        self.first_bad: tuple[int, str] | None = None
        self._fd = -1
        self._lines = 0
        self._rest = b""
        self._tail = b""  # the last bytes taken in, to tell a copy that goes on from another file
        self._position = 0

    def read(self) -> list[Record] | None:
        """The records of the next piece; None when there is nothing more just now."""
        if self._fd < 0 and not self._open():
            return None
        data = os.read(self._fd, READ_BYTES)
        if not data:
            if not self._replaced():
                return None
            self.close()
            return self.read()
        self._position += len(data)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            self._rest = b""
            self._bad("a line without an end")
        return [record for line in lines if (record := self._parse(line)) is not None]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def trouble(self) -> str | None:
        """What could not be read, in one sentence."""
        if self.first_bad is None:
            return None
        line, why = self.first_bad
        lines = count_words(self.bad_lines, "line")
        return f"{lines} of {self.path} could not be read; the first is line {line}: {why}"

    def _open(self) -> bool:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise LogError(f"cannot read {self.path}: {(error.strerror or '').lower()}") from None
        if stat.S_ISDIR(os.fstat(self._fd).st_mode):
            self.close()  # a folder of ranks where a file was looked for: the next look sees it
            return False
        if self._position and self._goes_on():
            os.lseek(self._fd, self._position, os.SEEK_SET)
        else:
            self._position = self._lines = 0
            self._rest = self._tail = b""
        return True

    def _goes_on(self) -> bool:
        """Whether the file under this name now begins with all that was read of the last one."""
        size = len(self._tail)
        return os.pread(self._fd, size, self._position - size) == self._tail

    def _replaced(self) -> bool:
        """Whether the name means another file now, or the file was cut short."""
        try:
            there, ours = os.stat(self.path), os.fstat(self._fd)
        except OSError:
            return False  # gone for the moment, as while a log is rotated
        same = (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
        return not same or there.st_size < self._position

    def _parse(self, line: bytes) -> Record | None:
        self._lines += 1
        if self._lines == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            return None
        try:
            record = from_json(line.decode())
        except UnicodeDecodeError:
            self._bad("not UTF-8")
        except RecordError as error:
            self._bad(str(error))
        else:
            self.records += 1
            return record
        return None

    def _bad(self, why: str) -> None:
        self.bad_lines += 1
        if self.first_bad is None:
            self.first_bad = (self._lines, why)


class LogFollower:
    """A log as a source of records: those it holds, and those that are still to come.

    A file that does not exist yet is waited for; one that is cut short or replaced is read anew,
    unless its replacement begins with all that was read already. A folder holds one log a rank.
    """

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self._clock = clock
        self._heard: dict[int, float] = {}
        self._files: dict[Path, _LogFile] = {}
        self._merger: RankMerger | None = None
        self._told = False

    def poll(self) -> list[Record]:
        """What has come, at most one piece of each file."""
        if self._merger is None and self.path.is_dir():
            self._merger = RankMerger()
            self._files.clear()
        if self._merger is None:
            records = self._file(self.path).read() or []
        else:
            for path in rank_files(self.path):
                self._file(path)
            self._merger.grow(len(self._files))
            for rank, file in enumerate(self._files.values()):
                self._follow(self._merger, rank, file)
            records = self._merger.take()
        return [*records, *self._complaint()]

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _follow(self, merger: RankMerger, rank: int, file: _LogFile) -> None:
        records = file.read()
        now = self._clock()
        if records:
            merger.feed(rank, records)
            self._heard[rank] = now
            merger.late.discard(rank)
        elif now - self._heard.setdefault(rank, now) > LATE_SECONDS:
            merger.late.add(rank)

    def _file(self, path: Path) -> _LogFile:
        return self._files.setdefault(path, _LogFile(path))

    def _complaint(self) -> list[Record]:
        """Unreadable lines are told once, not each."""
        bad = sum(file.bad_lines for file in self._files.values())
        if bad == 0 or self._told:
            return []
        self._told = True
        troubles = [trouble for file in self._files.values() if (trouble := file.trouble())]
        return [Notice(text, refused=True) for text in troubles]


def read_log(path: Path | str, report: Callable[[str], None] | None = None) -> Iterator[Record]:
    """Every record of a log, or of a folder with one log a rank.

    A half-written last line is left out; ``report`` is told of other lines that cannot be read.

    Raises:
        LogError: there is no log at this path.
    """
    place = Path(path)
    if not place.exists():
        raise LogError(f"there is no log at {place}")
    if place.is_dir():
        paths = rank_files(place)
        if not paths:
            raise LogError(f"the folder {place} holds no logs (rank-00000.jsonl and so on)")
        return _read_ranks([_LogFile(path) for path in paths], report)
    if place.stat().st_size == 0 and place.is_file():
        raise LogError(f"the log {place} is empty: nothing has been recorded yet")
    return _read_file(_LogFile(place), report)


def _read_file(file: _LogFile, report: Callable[[str], None] | None) -> Iterator[Record]:
    try:
        while (records := file.read()) is not None:
            yield from records
    finally:
        file.close()
    _conclude(file, report)


def _read_ranks(files: list[_LogFile], report: Callable[[str], None] | None) -> Iterator[Record]:
    merger = RankMerger(len(files))
    try:
        reading = set(range(len(files)))
        while reading:
            for rank in merger.behind() & reading or set(reading):
                records = files[rank].read()
                if records is None:
                    reading.discard(rank)
                    merger.finish(rank)
                else:
                    merger.feed(rank, records)
            yield from merger.take()
        yield from merger.take()
    finally:
        for file in files:
            file.close()
    for file in files:
        _conclude(file, report)


def _conclude(file: _LogFile, report: Callable[[str], None] | None) -> None:
    if file.records == 0:
        why = file.first_bad[1] if file.first_bad else "it holds no whole line"
        raise LogError(f"{file.path} is not a log of ampwatch: {why}")
    trouble = file.trouble()
    if trouble is not None and report is not None:
        report(trouble)
