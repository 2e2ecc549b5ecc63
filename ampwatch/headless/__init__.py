"""The front end without a screen."""

from __future__ import annotations

from ampwatch.headless.headless import run_headless

__all__ = ["run_headless"]
