"""Frames of many sizes, held against where their ticks belong; run with either major of plotext.

PYTHONPATH=<folder with another plotext> python tests/plot/plotext_check.py
"""

from __future__ import annotations

from importlib.metadata import version

from ampwatch.plot.frame import AROUND, LEAST_COLUMNS, LEAST_ROWS, Ticks, frame
from ampwatch.plot.plotext_frame import build
from ampwatch.plot.step_axis import step_axis

SIZES = [
    (columns, rows)
    for columns in (*range(LEAST_COLUMNS, 40, 3), 71, 133, 250)
    for rows in (3, 4, 17)
] + [(40, rows) for rows in range(LEAST_ROWS, 40)]


def check(columns: int, rows: int, x: Ticks, y: Ticks, labels: int) -> None:
    """Each tick is in its cell, with its label, and the box is as large as asked for."""
    where = f"{columns}x{rows} {x} {y}"
    drawn = frame(columns, rows, x, y, labels, False)
    assert drawn.top == " " * labels + "┌" + "─" * columns + "┐", where
    assert drawn.right == "│", where
    assert len(drawn.left) == rows, where
    texts = dict(y)
    for row, left in enumerate(drawn.left):
        tick = texts.get(row)
        assert left == (f"{tick:>{labels}}┤" if tick else " " * labels + "│"), where
    edge, words = drawn.bottom
    assert len(edge) == len(words) == columns + labels + 2, where
    inner = edge[labels + 1 : -1]
    assert edge == " " * labels + "└" + inner + "┘", where
    assert [column for column, sign in enumerate(inner) if sign == "┬"] == [at for at, _ in x], (
        where
    )
    assert words.split() == [text for _, text in x], where


def check_sizes() -> int:
    """Check a few hundred frames; returns how many."""
    count = 0
    for columns, rows in SIZES:
        for last in (99, 250_000):
            x = step_axis(0, last).ticks(columns)
            for y in ((), ((0, "top"),), ((rows - 1, "0"), (rows // 2, "2^16"), (0, "1e-3"))):
                check(columns, rows, x, y, 5)
                check(columns, rows, (), y, 9)
                count += 2
    return count


def check_size_beyond_the_terminal() -> None:
    rows = build(400, 120, [(0, "0"), (1, "9")], [(0, "    0"), (1, "    1")])
    assert len(rows) == 120
    assert {len(row) for row in rows} == {400}
    assert AROUND == 3


if __name__ == "__main__":
    frames = check_sizes()
    check_size_beyond_the_terminal()
    print(f"plotext {version('plotext')}: {frames} frames")
