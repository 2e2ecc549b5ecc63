"""The factor of GradScaler, with the steps it cost."""

from __future__ import annotations

from ampwatch.plot.spec import PlotSpec
from ampwatch.run import Run
from ampwatch.tui.figures import power_of_two
from ampwatch.tui.look import Look
from ampwatch.tui.panels.panel import Panel, curves, marks

HELP = """\
The factor of GradScaler as a power of two: it doubles after enough steps without an overflow.
A mark: a step that was skipped because a gradient was inf or NaN; the scale halves after it.
A calm staircase with a rare mark is healthy; falling and falling means something overflows."""


def spec(run: Run, look: Look) -> PlotSpec:
    first, last = look.steps(max(run.steps - 1, 0))
    scaled = run.last is not None and run.last.scaler == "off"
    return PlotSpec(
        name="scale",
        title="scale",
        value=power_of_two(run.last.scale if run.last is not None else None),
        curves=curves(run, "scale"),
        first=first,
        last=last,
        axis="log2",
        marks=marks(run, first, last, ("skip", "knob")),
        empty="the scaler is off" if scaled else "no scaler seen in this loop",
    )


PANEL = Panel("scale", "Scale", ("scale",), spec, HELP)
