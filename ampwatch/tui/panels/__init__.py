"""What the dashboard can show, one file a panel. Adding a plot is adding one file and one line."""

from __future__ import annotations

from ampwatch.tui.panels import grad_norm, loss, nonfinite, scale
from ampwatch.tui.panels.panel import Panel

PLOTS: tuple[Panel, ...] = (loss.PANEL, scale.PANEL, grad_norm.PANEL, nonfinite.PANEL)
PLOT_BY_NAME = {panel.name: panel for panel in PLOTS}
