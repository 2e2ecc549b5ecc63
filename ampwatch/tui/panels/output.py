"""What the script printed: its colours, its progress lines, and its traceback if it failed."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Protocol

from rich.cells import cell_len
from rich.text import Text

from ampwatch.tui.foreign import coloured, uncoloured
from ampwatch.tui.rows import Rows

HELP = """\
Everything the script and its child processes printed, colours and progress bars included.
It follows the newest line; scroll up to stay where you are, press end to follow again.
Long lines are folded. A script that failed shows its traceback here."""
NOTHING = "The script has printed nothing yet."
RECORDED = "A recording holds what was measured, not what the script printed."


class Printed(Protocol):
    """What a job keeps of its script's output."""

    lines: deque[str]
    current: str
    total: int
    version: int


class Output(Rows):
    """The latest lines of the script, folded to the width as a terminal would."""

    HELP = HELP

    def __init__(self, printed: Printed | None) -> None:
        super().__init__(id="output")
        self._printed = printed
        self._version = -1
        self._total = 0
        self._widths: deque[int] = deque()
        self._ends: list[int] = []

    def sync(self) -> None:
        """Show what came since the last call."""
        printed = self._printed
        if printed is None or printed.version == self._version:
            return
        self._version = printed.version
        if printed.total < self._total:  # the script was started again
            self._total = 0
            self._widths.clear()
        fresh = min(printed.total - self._total, len(printed.lines))
        self._total = printed.total
        latest = list(islice(reversed(printed.lines), fresh))
        self._widths.extend(cell_len(uncoloured(line)) for line in reversed(latest))
        width = self.row_width
        dropped = 0
        while len(self._widths) > len(printed.lines):
            dropped += _rows(self._widths.popleft(), width)
        self.rows_changed(dropped)

    def count_rows(self, width: int) -> int:
        printed = self._printed
        if printed is None:
            return 1
        heights = [_rows(each, width) for each in self._widths]
        if printed.current:
            heights.append(_rows(cell_len(uncoloured(printed.current)), width))
        self._ends = list(accumulate(heights))
        return self._ends[-1] if self._ends else 1

    def row(self, index: int, width: int) -> Text:
        printed = self._printed
        if printed is None or not self._ends:
            return Text(RECORDED if printed is None else NOTHING, style="dim", end="")
        number = bisect_right(self._ends, index)
        if number >= len(self._ends):
            return Text(end="")
        start = self._ends[number - 1] if number else 0
        line = printed.lines[number] if number < len(printed.lines) else printed.current
        return _piece(coloured(line), index - start, width)


def _rows(cells: int, width: int) -> int:
    return max(1, -(-cells // width))


def _piece(text: Text, number: int, width: int) -> Text:
    """The ``number``-th row of a text folded every ``width`` cells."""
    if text.cell_len == len(text.plain):
        return text[number * width : (number + 1) * width]
    cuts = _cuts(text.plain, width)
    if number + 1 >= len(cuts):
        return Text(end="")
    return text[cuts[number] : cuts[number + 1]]


def _cuts(line: str, width: int) -> Sequence[int]:
    """Where a line with wide or zero-width characters is folded, as indices."""
    cuts, used = [0], 0
    for index, character in enumerate(line):
        cells = cell_len(character)
        if used + cells > width:
            cuts.append(index)
            used = 0
        used += cells
    return [*cuts, len(line)]
