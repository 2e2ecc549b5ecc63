"""Runs a training in a process of its own: the screen's side."""

from __future__ import annotations

from ampwatch.launch.script_job import ScriptJob

__all__ = ["ScriptJob"]
