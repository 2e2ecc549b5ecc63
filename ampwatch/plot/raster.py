"""From columns of a series to dots: runs from smallest to largest, joined; gaps stay gaps."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ampwatch.history import Flags, Floats

Dots: TypeAlias = npt.NDArray[np.bool_]

FLAT = 4
"""Dots; a steeper part of a curve is never thinned by its dash pattern."""
WIDEST_BAR = 4
"""Dot columns of a bar where steps are far apart."""


def line_dots(lo: Floats, hi: Floats, broken: Flags, rows: int, keep: Flags) -> Dots:
    """A curve as dots, ``rows`` high, one dot column for each entry.

    Args:
        lo, hi: smallest and largest place in each column, from 0 (bottom) to 1 (top); NaN where
            nothing was measured, which is bridged by a line.
        broken: columns with nothing but bad values: no line crosses them.
        keep: the dash pattern; dots outside it are left out where the curve is flat enough for
            the eye to go on.
    """
    present = np.isfinite(lo)
    shown = np.flatnonzero(present)
    if not len(shown):
        return np.zeros((rows, len(lo)), dtype=np.bool_)
    top, bottom = (1 - hi) * (rows - 1), (1 - lo) * (rows - 1)
    if len(shown) < len(lo):
        _bridge(top, bottom, present, shown, broken)
    drawn = np.isfinite(top)
    np.copyto(top, rows, where=~drawn)
    np.copyto(bottom, -1, where=~drawn)
    first, last = _dots(top, rows), _dots(bottom, rows)
    # A run reaches to the neighbouring dot of the run before it: a line without holes.
    both = drawn[1:] & drawn[:-1]
    upper, lower = first.copy(), last.copy()
    upper[1:] = np.where(both, np.minimum(first[1:], last[:-1] + 1), first[1:])
    lower[1:] = np.where(both, np.maximum(last[1:], first[:-1] - 1), last[1:])
    if not keep.all():
        dashed = ~keep & (lower - upper < FLAT)
        dashed[0] = False
        dashed[1:] &= drawn[:-1]
        drawn &= ~dashed
    row = np.arange(rows)[:, None]
    dots: Dots = (row >= upper) & (row <= lower) & drawn
    return dots


def thickened(dots: Dots) -> Dots:
    """The same, each dot with its neighbours to the right and below, in the last row above."""
    wide = dots.copy()
    wide[:, 1:] |= dots[:, :-1]
    thick = wide.copy()
    thick[1:] |= wide[:-1]
    if len(thick) > 1:
        thick[-2] |= wide[-1]
    return thick


def bar_dots(hi: Floats, rows: int, width: int) -> Dots:
    """Bars from the bottom to each value; any value above 0 is seen.

    Args:
        hi: largest place in each column, NaN where nothing was measured.
        width: dot columns that belong to one step.
    """
    present = np.isfinite(hi)
    shown = np.flatnonzero(present)
    if not len(shown):
        return np.zeros((rows, len(hi)), dtype=np.bool_)
    place = np.where(present, hi, 0.0)
    height = np.rint(np.clip(place, 0, 1) * (rows - 1)).astype(np.int64) + 1
    height[place > 0] = np.maximum(height[place > 0], min(2, rows))
    # The base line says: counted, and 0.
    height[~present] = 0
    height[shown[0] : shown[-1]] = np.maximum(height[shown[0] : shown[-1]], 1)
    bars = height.copy()
    for shift in range(1, min(width - 1, WIDEST_BAR)):
        bars[shift:] = np.maximum(bars[shift:], height[:-shift])
    dots: Dots = np.arange(rows, 0, -1)[:, None] <= bars
    return dots


def _bridge(
    top: Floats, bottom: Floats, present: Flags, shown: npt.NDArray[np.intp], broken: Flags
) -> None:
    """Put a straight line into columns without a value that lie between two with one."""
    columns = np.arange(len(top))
    middle = (top[shown] + bottom[shown]) / 2
    breaks = np.cumsum(broken)
    left = np.clip(np.searchsorted(shown, columns, side="right") - 1, 0, None)
    right = np.minimum(left + 1, len(shown) - 1)
    free = ~present & (columns > shown[0]) & (columns < shown[-1])
    free &= breaks[shown[left]] == breaks[shown[right]]
    line = np.interp(columns, shown, middle)
    top[free] = bottom[free] = line[free]


def _dots(place: Floats, rows: int) -> npt.NDArray[np.int64]:
    return np.rint(np.clip(place, 0, rows - 1)).astype(np.int64)
