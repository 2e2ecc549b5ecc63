"""Draws plots into terminal cells: pure functions from plain data to rows of styled text."""

from __future__ import annotations

from ampwatch.plot.spec import Curve, Mark, Picture, PlotSpec

__all__ = ["Curve", "Mark", "Picture", "PlotSpec"]
