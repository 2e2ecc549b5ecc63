"""The L2 norm of all gradients, before and after clipping."""

from __future__ import annotations

from ampwatch.plot.spec import Curve, PlotSpec
from ampwatch.run import Run
from ampwatch.tui.figures import figure
from ampwatch.tui.look import Look
from ampwatch.tui.panels.panel import Panel, curves, marks

HELP = """\
The length of the whole gradient, without the scale; the second curve is what clipping left of it.
A gap marked !: the norm was inf or NaN in that step, so the scaler skipped it; or it was exactly
0, which has no place on a logarithmic axis.
With several optimizers each has its own curve."""


def spec(run: Run, look: Look) -> PlotSpec:
    first, last = look.steps(max(run.steps - 1, 0))
    norms = curves(run, "grad_norm")
    clipped = tuple(
        Curve("clipped" if curve.name == "clipped_norm" else f"{curve.name} clipped", curve.history)
        for curve in curves(run, "clipped_norm")
    )
    return PlotSpec(
        name="grad_norm",
        title="gradient norm",
        value=" · ".join(figure(curve.history.last) for curve in norms),
        curves=(*norms, *clipped),
        first=first,
        last=last,
        axis="log10",
        marks=marks(run, first, last, ("knob",)),
        empty="no gradient norm measured yet",
    )


PANEL = Panel("grad_norm", "Gradient norm", ("grad_norm", "clipped_norm"), spec, HELP)
