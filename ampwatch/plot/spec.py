"""What a panel asks for and what it gets: plain data, no widget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ampwatch.history import History

Segment: TypeAlias = tuple[str, str]
"""Text, and the key of its style."""
Row: TypeAlias = tuple[Segment, ...]

CURVE_STYLES = ("curve0", "curve1", "curve2", "curve3", "curve4")
STYLES = ("frame", "title", "value", *CURVE_STYLES, "skip", "knob", "bad", "line", "empty")
"""All style keys of a picture."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a step: a skipped step ("skip") or a turned knob ("knob")."""

    step: int
    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    """Shown in the legend where a plot has several curves."""
    history: History


@dataclass(frozen=True, slots=True)
class PlotSpec:
    name: str
    """The quantity, as everywhere else: "loss", "scale", "grad_norm", "nonfinite"."""
    title: str
    """Plain text, top left."""
    value: str
    """The latest value in words, beside the title."""
    curves: tuple[Curve, ...]
    first: int
    last: int
    """The window of steps, both ends included; the axis may reach a little further."""
    axis: str = "linear"
    """"linear", "log2" (powers of two: the scale) or "log10"."""
    marks: tuple[Mark, ...] = ()
    lines: tuple[tuple[float, str], ...] = ()
    """Horizontal lines and what they say, such as the clip limit."""
    empty: str = "nothing measured yet"
    """What is said while there is nothing to draw."""
    floor_zero: bool = False
    """Counts: drawn as bars from 0, so that a single step's spike is seen."""
    thick: bool = False
    """Curves two dots thick, to be seen from afar."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn plot: ``height`` rows, each exactly ``width`` terminal cells wide."""

    width: int
    height: int
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        """The picture without its styles, one line a row."""
        return "\n".join("".join(text for text, _ in row) for row in self.rows)
