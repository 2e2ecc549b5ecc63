"""What a plot panel is: a quantity, its title, the series it wants, and how they become a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ampwatch.plot.spec import Curve, Mark, PlotSpec
from ampwatch.run import Run
from ampwatch.tui.look import Look


@dataclass(frozen=True, slots=True)
class Panel:
    name: str
    """The quantity, as everywhere else: record field, series, stylesheet id."""
    title: str
    series: tuple[str, ...]
    spec: Callable[[Run, Look], PlotSpec]
    help: str
    """How to read the plot, in three lines."""


def curves(run: Run, quantity: str) -> tuple[Curve, ...]:
    """The curve of a quantity; with several optimizers, one for each, named after it."""
    return tuple(Curve(label, history) for label, history in run.named(quantity))


def marks(run: Run, first: int, last: int, kinds: Iterable[str]) -> tuple[Mark, ...]:
    """The marks of some kinds in a window of steps."""
    wanted = frozenset(kinds)
    return tuple(mark for mark in run.marks_between(first, last) if mark.kind in wanted)
