"""The last line of a log whose writer was killed before it could write it."""

from __future__ import annotations

import os

from ampwatch.errors import RecordError
from ampwatch.record import RunEnd, from_json, to_json

TAIL_BYTES = 8 * 1024 * 1024
"""No line is as long: the figures of tens of thousands of tensors fit."""


def finish_log(path: str, end: RunEnd) -> None:
    """Append ``end`` to a log, after taking away a line that was only half written.

    Raises:
        OSError: the log cannot be read or written.
    """
    with open(path, "r+b") as log:
        size = log.seek(0, os.SEEK_END)
        start = max(0, size - TAIL_BYTES)
        log.seek(start)
        tail = log.read()
        whole, feed, rest = tail.rpartition(b"\n")
        if rest and _is_record(rest):
            log.write(b"\n")
        else:
            log.truncate(start + len(whole) + len(feed))
            log.seek(0, os.SEEK_END)
        log.write(to_json(end).encode() + b"\n")


def _is_record(line: bytes) -> bool:
    try:
        from_json(line.decode())
    except (RecordError, UnicodeDecodeError):
        return False
    return True
