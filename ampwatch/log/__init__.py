"""The log of a run: a file of JSON Lines, one a rank."""

from __future__ import annotations

from ampwatch.log.ranks import rank_path
from ampwatch.log.reader import LogFollower, read_log
from ampwatch.log.whole import FollowedLog, WholeLog, check_log
from ampwatch.log.writer import LogWriter

__all__ = [
    "FollowedLog",
    "LogFollower",
    "LogWriter",
    "WholeLog",
    "check_log",
    "rank_path",
    "read_log",
]
