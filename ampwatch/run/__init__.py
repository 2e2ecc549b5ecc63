"""Everything that is known about a run, and the plain words for what happened in it."""

from __future__ import annotations

from ampwatch.run.run import Run

__all__ = ["Run"]
