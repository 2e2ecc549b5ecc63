"""The log of a run: a file of JSON Lines, one a rank."""

from __future__ import annotations

from ampwatch.log.ranks import rank_path
from ampwatch.log.reader import LogFollower, read_log
from ampwatch.log.writer import LogWriter

__all__ = ["LogFollower", "LogWriter", "rank_path", "read_log"]
