"""Whether a dashboard can be drawn here."""

from __future__ import annotations

import os
import sys

from ampwatch.errors import UsageError


def require_terminal(instead: str) -> None:
    """Raises UsageError where no dashboard can be drawn; ``instead`` says what to do then."""
    names = ("stdin", "stdout", "stderr")
    missing = [name for name in names if not _is_terminal(getattr(sys, name))]
    if missing:
        why = f"{missing[0]} is not one"
    elif os.environ.get("TERM") == "dumb":
        why = "this one cannot move its cursor (TERM=dumb)"
    else:
        return
    raise UsageError(f"the dashboard needs a terminal and {why}; {instead}")


def _is_terminal(stream: object) -> bool:
    try:
        return os.isatty(stream.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False
