"""Our own errors: a sentence for the user and an exit code, caught once, at the command line."""

from __future__ import annotations

from typing import ClassVar


class AmpwatchError(Exception):
    """Something the user can put right; its text is one sentence that says what and how."""

    exit_code: ClassVar[int] = 2


class UsageError(AmpwatchError):
    """A command was asked for something it cannot do."""


class LogError(AmpwatchError):
    """A log cannot be read or written."""


class RecordError(AmpwatchError):
    """A line is not a record of the schema this version knows."""
