"""A step that was taken apart, as a sequence of stages in plain words: every sentence is made from
the numbers of the step. Knows nothing of a screen.
"""

from __future__ import annotations

from ampwatch.explain.stage import Block, Line, Stage
from ampwatch.explain.stages import stages

__all__ = ["Block", "Line", "Stage", "stages"]
