"""The loss of every variant in one plot, drawn as the dashboard draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from ampwatch.compare.figures import IMPOSSIBLE, Ended
from ampwatch.compare.track import Track
from ampwatch.history import History
from ampwatch.plot.draw import draw
from ampwatch.plot.heading import legend
from ampwatch.plot.spec import Curve, PlotSpec

LOG_FROM = 20.0
"""As on the dashboard: largest over smallest loss from which on a log axis shows more."""
HEIGHT = 16
STYLES = {
    "frame": "dim",
    "title": "bold",
    "curve0": "bold",
    "curve1": "cyan",
    "curve2": "green",
    "curve3": "yellow",
    "curve4": "magenta",
    "bad": "bold red",
    "empty": "dim",
}


def loss_plot(runs: Sequence[Ended], width: int, *, ascii_only: bool) -> list[Text]:
    """The rows of the plot, with a legend below where there is no room for one in its first row;
    none where no loss was seen."""
    shown = [run for run in runs if run.track.losses and run.status != IMPOSSIBLE]
    if not shown:
        return []
    curves = tuple(Curve(run.variant.short, _history(run.track)) for run in shown)
    last = max(run.track.steps for run in shown) - 1
    log = _log(shown)
    spec = PlotSpec(
        name="loss",
        title="loss (log)" if log else "loss",
        value="",
        curves=curves,
        first=0,
        last=last,
        axis="log10" if log else "linear",
    )
    rows = list(draw(spec, width, HEIGHT, ascii_only=ascii_only).rows)
    entries = legend(spec, ascii_only)
    if not set(entries) <= set(rows[0]):
        rows += [(entry,) for entry in entries]
    return [
        Text.assemble(*((text, STYLES.get(style, "")) for text, style in row), no_wrap=True)
        for row in rows
    ]


def _history(track: Track) -> History:
    history = History()
    for step, loss in zip(track.loss_steps, track.losses, strict=True):
        history.add(step, loss)
    return history


def _log(runs: Sequence[Ended]) -> bool:
    losses = [loss for run in runs for loss in run.track.losses if math.isfinite(loss)]
    return bool(losses) and min(losses) > 0 and max(losses) / min(losses) > LOG_FROM
