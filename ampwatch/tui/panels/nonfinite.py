"""How many gradients held an inf or a NaN."""

from __future__ import annotations

from ampwatch.plot.spec import PlotSpec
from ampwatch.run import Run
from ampwatch.tui.look import Look
from ampwatch.tui.panels.panel import Panel, curves, marks

HELP = """\
How many parameters had an inf or a NaN in their gradient; nothing to see is good.
One spike, one skipped step: the scale was too large for a moment, and halves.
Spikes without end: a NaN in the data or the loss, or targets far too large for float16."""


def spec(run: Run, look: Look) -> PlotSpec:
    first, last = look.steps(max(run.steps - 1, 0))
    shown = curves(run, "nonfinite_tensors")
    counts = [curve.history.last for curve in shown if curve.history.last is not None]
    value = f"{int(sum(counts)):,}" if counts else "–"
    known = len(run.info.tensors) if run.info is not None else 0
    return PlotSpec(
        name="nonfinite",
        title="non-finite gradients",
        value=f"{value} of {known:,}" if known and counts else value,
        curves=shown,
        first=first,
        last=last,
        marks=marks(run, first, last, ("knob",)),
        empty="no gradients counted yet",
        floor_zero=True,
    )


PANEL = Panel("nonfinite", "Non-finite gradients", ("nonfinite_tensors",), spec, HELP)
