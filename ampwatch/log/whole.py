"""Logs as sources of records for a front end: one as it is now, and one that grows."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from ampwatch.errors import LogError
from ampwatch.log.ranks import rank_files
from ampwatch.log.reader import LogFollower, read_log
from ampwatch.record import Notice, Record

POLL_RECORDS = 1000
"""Handed out in one go: some hundredths of a second, so that a screen stays awake."""


class WholeLog:
    """A log, or a folder with one log a rank, as a source of records: from its first to its last.

    ``poll()`` gives nothing more when all has been read. What cannot be read is told by a notice;
    only a log without any record raises a LogError, here or at the first ``poll()``.
    """

    def __init__(self, path: Path | str) -> None:
        self._troubles: list[str] = []
        self._given = False
        self._records = read_log(path, self._troubles.append)

    def poll(self) -> list[Record]:
        records: list[Record] = []
        try:
            records.extend(islice(self._records, POLL_RECORDS))
        except (LogError, OSError) as error:
            if not self._given and not records:
                raise
            self._troubles.append(str(error))
        self._given = True
        told = [Notice(text, refused=True) for text in self._troubles]
        self._troubles.clear()
        return [*records, *told]


class FollowedLog:
    """A log that is read while it grows; what cannot be read just now is told once."""

    def __init__(self, path: Path | str) -> None:
        self._follower = LogFollower(path)
        self._told = ""

    def poll(self) -> list[Record]:
        try:
            return self._follower.poll()
        except (LogError, OSError) as error:
            text, before = str(error), self._told
            self._told = text
            return [] if text == before else [Notice(text, refused=True)]


def check_log(path: Path | str, *, growing: bool = False) -> None:
    """Raises LogError unless there is something to read at this path.

    ``growing``: an empty file and a folder without logs will do, since more is to come.
    """
    place = Path(path)
    try:
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise LogError(f"{place} is neither a file nor a folder")
        if growing and place.is_dir() and not rank_files(place):
            return
        if growing and place.is_file() and place.stat().st_size == 0:
            return
        next(read_log(place), None)
    except OSError as error:
        raise LogError(f"cannot read {place}: {(error.strerror or str(error)).lower()}") from None
