"""The loss: what was back-propagated, without the scale."""

from __future__ import annotations

from ampwatch.plot.spec import Curve, PlotSpec
from ampwatch.run import Run
from ampwatch.tui.figures import figure
from ampwatch.tui.foreign import shorten
from ampwatch.tui.look import Look
from ampwatch.tui.panels.panel import Panel, curves, marks

HELP = """\
The mean of the losses of each step, before the scale. A log axis once it has fallen far.
A mark at a step: it was skipped (its update was dropped) or a knob was turned there.
A gap with a mark: the loss was inf or NaN."""
MOST_METRICS = 3
LOG_FROM = 20.0
"""Largest over smallest loss of the run from which on a linear axis would hide the end."""


def axis(shown: tuple[Curve, ...], last: int, look: Look) -> str:
    """Log as soon as the losses span decades, linear for good where one is 0 or negative."""
    if look.loss_axis is not None:
        return look.loss_axis
    spans = [span for curve in shown if (span := curve.history.limits(0, last)) is not None]
    if not spans:
        return "linear"
    low, high = min(lo for lo, _ in spans), max(hi for _, hi in spans)
    return "log10" if low > 0 and high / low > LOG_FROM else "linear"


def value(run: Run, shown: tuple[Curve, ...]) -> str:
    """The latest losses, and the latest of what the loop logged beside them."""
    losses = " · ".join(figure(curve.history.last) for curve in shown)
    metrics = [
        f"{shorten(key.partition('.')[2], 16)} {figure(history.last)}"
        for key, history in run.series.items()
        if key.startswith("metrics.")
    ]
    return "  ".join([losses, *metrics[:MOST_METRICS]])


def spec(run: Run, look: Look) -> PlotSpec:
    first, last = look.steps(max(run.steps - 1, 0))
    shown = curves(run, "loss")
    chosen = axis(shown, last, look)
    return PlotSpec(
        name="loss",
        title="loss (log)" if chosen == "log10" else "loss",
        value=value(run, shown),
        curves=shown,
        first=first,
        last=last,
        axis=chosen,
        marks=marks(run, first, last, ("skip", "knob")),
        empty="no loss seen yet",
    )


PANEL = Panel("loss", "Loss", ("loss",), spec, HELP)
