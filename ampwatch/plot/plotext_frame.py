"""The only file that knows plotext, major 5 and major 6.

plotext draws a box with ticks in the unit square; no measured value ever reaches it, because
both majors hang, abort or raise on some values (NaN, infinities, tight limits, zeros on a log
axis). The figure is our own, so that a script or library that uses plotext is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def build(
    width: int,
    height: int,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
) -> list[str]:
    """A box of ``width`` by ``height`` characters with ticks at places from 0 to 1."""
    import plotext  # a fifth of a second: paid at the first plot, not at the first frame

    drawn = _build_5 if hasattr(plotext, "build") else _build_6
    x, y = (tuple(zip(*ticks, strict=True)) or ((), ()) for ticks in (x_ticks, y_ticks))
    return drawn(plotext, width, height, (x, y)).rstrip("\n").split("\n")


def _build_5(plotext: Any, width: int, height: int, ticks: Sequence[Any]) -> str:
    # The class of plotext's own figure; its public functions all share one figure.
    figure = plotext._figure._figure_class()
    figure._limit_size(False, False)  # not to the size of the terminal
    figure.plot_size(width, height)
    figure._set_size(width, height)
    figure.theme("clear")
    figure.scatter([0], [0], marker=" ")  # without any data it draws no ticks
    figure.xlim(0, 1)
    figure.ylim(0, 1)
    (x_at, x_labels), (y_at, y_labels) = ticks
    figure.xticks(list(x_at), list(x_labels))
    figure.yticks(list(y_at), list(y_labels))
    text: str = plotext.uncolorize(figure.build())
    return text


def _build_6(plotext: Any, width: int, height: int, ticks: Sequence[Any]) -> str:
    plotext.terminal.limit(False, False)  # not to the size of the terminal
    figure = type(plotext.figure)(plotext.terminal)
    figure.plot_size(width, height)
    figure.theme("colorless")
    figure.draw(figure.signal([0], [0], marker=" "))
    for name, (at, labels) in zip("xy", ticks, strict=True):
        ruler = figure.ruler(name)
        ruler.lim(0, 1)
        ruler.ticks(list(at), list(labels))
    text: str = figure.build().string(colorless=True)
    return text
