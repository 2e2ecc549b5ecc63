"""Series and specs that the tests of plots share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ampwatch.history import History
from ampwatch.plot.spec import Curve, Picture, PlotSpec


def series(values: Iterable[float], first: int = 0) -> History:
    history = History()
    for step, value in enumerate(values, first):
        history.add(step, value)
    return history


def spec(*curves: Iterable[float], last: int | None = None, **more: Any) -> PlotSpec:
    """A plot of some curves from step 0 on."""
    listed = [list(values) for values in curves]
    drawn = tuple(Curve(f"curve {n}", series(values)) for n, values in enumerate(listed))
    end = last if last is not None else max([0, *(len(values) - 1 for values in listed)])
    return PlotSpec(
        **{
            "name": "x",
            "title": "loss",
            "value": "0.25",
            "curves": drawn,
            "first": 0,
            "last": end,
            **more,
        }
    )


def styled(picture: Picture, style: str) -> str:
    """All text of one style, rows joined by line feeds."""
    return "\n".join("".join(text for text, key in row if key == style) for row in picture.rows)


def cells(picture: Picture) -> dict[tuple[int, int], tuple[str, str]]:
    """Character and style at (row, column); for pictures without wide characters."""
    found = {}
    for y, row in enumerate(picture.rows):
        pairs = [(character, key) for text, key in row for character in text]
        found.update({(y, x): pair for x, pair in enumerate(pairs)})
    return found
