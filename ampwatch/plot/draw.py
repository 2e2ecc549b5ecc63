"""From a plot spec to rows of styled text, in any size, for any values; it never raises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ampwatch.history import Columns, Flags
from ampwatch.plot import scene
from ampwatch.plot.axis import Axis, bare_axis, value_axis
from ampwatch.plot.canvas import Canvas
from ampwatch.plot.cells import ACROSS, DOWN, characters, encode
from ampwatch.plot.frame import NARROWEST_LABEL, Ticks, frame, inside, label_width
from ampwatch.plot.heading import heading
from ampwatch.plot.raster import bar_dots, line_dots, thickened
from ampwatch.plot.signs import signs
from ampwatch.plot.spec import CURVE_STYLES, Picture, PlotSpec, Row
from ampwatch.plot.step_axis import StepAxis, step_axis
from ampwatch.plot.text import cut, plain

MOST_TICKS = 7
ROWS_TO_A_TICK, ROWS_FOR_3_TICKS = 3, 5
LONGEST_KNOB = 24
LEAST_ROWS_WITH_LANE = 3
"""Fewer rows are not shared with a lane for the marks of skipped steps."""
NOT_HERE = "nothing measured in these steps"


def draw(spec: PlotSpec, width: int, height: int, *, ascii_only: bool = False) -> Picture:
    """The plot in ``width`` by ``height`` cells.

    Where there is room, a frame with ticks; in less, the curve alone; in one row, the title.
    """
    width, height = max(width, 0), max(height, 0)
    if not width or not height:
        return Picture(width, height, ((),) * height)
    if height == 1:
        return Picture(width, 1, (heading(spec, width, " " * width, ascii_only),))
    rows = _framed(spec, width, height, ascii_only) or _bare(spec, width, height, ascii_only)
    return Picture(width, height, tuple(rows))


@dataclass(slots=True)
class _Plan:
    """All that is decided before the first cell is painted."""

    spec: PlotSpec
    steps: StepAxis
    columns: int
    rows: int
    drawn: list[Columns]
    marks: scene.Marked
    axis: Axis
    lane: int
    """Rows at the bottom kept for marks of skipped steps."""

    def y_ticks(self) -> Ticks:
        dots = (self.rows - self.lane) * DOWN - 1
        cells = {round((1 - tick.at) * dots) // DOWN: tick.label for tick in self.axis.ticks}
        return tuple(cells.items())


def _plan(spec: PlotSpec, columns: int, rows: int) -> _Plan:
    steps = step_axis(spec.first, spec.last)
    drawn = scene.curves(spec, steps, columns * ACROSS)
    marks = scene.marked(spec.marks, steps, columns)
    lane = 1 if len(marks.skips) and rows >= LEAST_ROWS_WITH_LANE else 0
    span = scene.span(spec, drawn)
    least = 2 if rows - lane < ROWS_FOR_3_TICKS else 3
    most = max(least, min(MOST_TICKS, (rows - lane) // ROWS_TO_A_TICK + 1))
    axis = value_axis(spec.axis, *span, most, spec.floor_zero) if span else bare_axis(spec.axis)
    return _Plan(spec, steps, columns, rows, drawn, marks, axis, lane)


def _framed(spec: PlotSpec, width: int, height: int, ascii_only: bool) -> list[Row] | None:
    """The plot in its frame, None where there is no room for one."""
    labels = NARROWEST_LABEL
    columns, rows = inside(width, height, labels)
    if not columns:
        return None
    plan = _plan(spec, columns, rows)
    needed = label_width([tick.label for tick in plan.axis.ticks])
    if needed > labels:
        labels = needed
        columns, rows = inside(width, height, labels)
        if not columns:
            return None
        plan = _plan(spec, columns, rows)
    x = plan.steps.ticks(columns)
    around = frame(columns, rows, x, plan.y_ticks(), labels, ascii_only)
    painted = _painted(plan, ascii_only).segments()
    return [
        heading(spec, width, around.top, ascii_only),
        *(
            ((left, "frame"), *segments, (around.right, "frame"))
            for left, segments in zip(around.left, painted, strict=True)
        ),
        *(((row, "frame"),) for row in around.bottom),
    ]


def _bare(spec: PlotSpec, width: int, height: int, ascii_only: bool) -> list[Row]:
    """The title and the curve, nothing else."""
    painted = _painted(_plan(spec, width, height - 1), ascii_only).segments()
    return [heading(spec, width, " " * width, ascii_only), *map(tuple, painted)]


def _painted(plan: _Plan, ascii_only: bool) -> Canvas:
    spec, sign = plan.spec, signs(ascii_only)
    canvas = Canvas(plan.columns, plan.rows)
    rows = plan.rows - plan.lane
    if not any(columns.bad.any() or np.isfinite(columns.hi).any() for columns in plan.drawn):
        _say_empty(canvas, spec, ascii_only)
        return canvas
    for column in plan.marks.knobs:
        canvas.column(column, plan.rows, sign.knob, "knob")
    if plan.axis.ticks:
        _reference_lines(canvas, plan, sign.line)
    bad = np.zeros(plan.columns, dtype=np.bool_)
    # The first curve is painted last: where curves meet, it is the one to be seen.
    for number in reversed(range(len(plan.drawn))):
        columns = plan.drawn[number]
        code = encode(_dots(plan, number, rows * DOWN))
        kind = number % len(CURVE_STYLES)
        canvas.paint(characters(code, ascii_only, kind), CURVE_STYLES[kind])
        bad |= columns.bad.reshape(-1, ACROSS).any(axis=1)
    for column, words in plan.marks.knobs.items():
        _name_knob(canvas, column, plain(words, ascii_only))
    canvas.put(plan.rows - 1, plan.marks.skips, sign.skip, "skip")
    canvas.put(0, np.flatnonzero(bad), sign.bad, "bad")
    return canvas


def _dots(plan: _Plan, number: int, dots: int) -> Flags:
    columns = plan.drawn[number]
    lo, hi = plan.axis.place(columns.lo), plan.axis.place(columns.hi)
    if plan.spec.floor_zero:
        width = len(hi) // (plan.steps.hi - plan.steps.lo + 1)
        return bar_dots(hi, dots, width)
    broken = columns.bad & ~np.isfinite(columns.hi)
    curve = line_dots(lo, hi, broken, dots, _dashes(number, len(lo)))
    return thickened(curve) if plan.spec.thick else curve


def _dashes(number: int, dots: int) -> Flags:
    """The dot columns that a curve is drawn in, so that curves differ without colour."""
    at = np.arange(dots)
    kind = number % len(CURVE_STYLES)
    keep: tuple[Flags, ...] = (at >= 0, at % 4 < 2, at % 2 == 0, at % 6 < 4, at % 8 < 2)
    return keep[kind]


def _reference_lines(canvas: Canvas, plan: _Plan, sign: str) -> None:
    dots = (plan.rows - plan.lane) * DOWN - 1
    values = np.array([at for at, _ in plan.spec.lines], dtype=np.float64)
    for place in plan.axis.place(values).tolist():
        if 0 <= place <= 1:
            canvas.row(round((1 - place) * dots) // DOWN, sign, "line")


def _name_knob(canvas: Canvas, column: int, words: str) -> None:
    """Say beside a knob's line what it was turned to, in the highest place that is free."""
    if words and len(words) <= LONGEST_KNOB:
        for row in range(canvas.rows // 2):
            if canvas.is_free(row, column + 1, len(words) + 1):
                canvas.write(row, column + 1, words, "knob")
                return


def _say_empty(canvas: Canvas, spec: PlotSpec, ascii_only: bool) -> None:
    measured = any(curve.history.version for curve in spec.curves)
    words = cut(plain(NOT_HERE if measured else spec.empty, ascii_only), canvas.columns, ascii_only)
    row = canvas.rows // 2
    canvas.write(row, (canvas.columns - len(words)) // 2, words, "empty")
