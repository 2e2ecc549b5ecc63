"""Characters and styles of the cells inside a plot, and what is painted over what."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from ampwatch.plot.cells import BLANK, Codes
from ampwatch.plot.spec import STYLES, Segment

Style: TypeAlias = npt.NDArray[np.uint8]
NUMBER = {style: number for number, style in enumerate(STYLES)}


class Canvas:
    """Cells that all start blank; each painter says whether it may cover what is there."""

    __slots__ = ("codes", "columns", "rows", "styles")

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.codes: Codes = np.full((rows, columns), BLANK, dtype="<u4")
        self.styles: Style = np.zeros((rows, columns), dtype=np.uint8)

    def column(self, column: int, rows: int, sign: str, style: str) -> None:
        """A vertical line over the first ``rows`` rows, under everything painted later."""
        self.codes[:rows, column] = ord(sign)
        self.styles[:rows, column] = NUMBER[style]

    def row(self, row: int, sign: str, style: str) -> None:
        """A horizontal line, under everything painted later."""
        self.codes[row] = ord(sign)
        self.styles[row] = NUMBER[style]

    def write(self, row: int, column: int, text: str, style: str) -> None:
        """Text of characters one cell wide; left out where it does not fit."""
        if column >= 0 and column + len(text) <= self.columns and cell_len(text) == len(text):
            end = column + len(text)
            self.codes[row, column:end] = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
            self.styles[row, column:end] = NUMBER[style]

    def is_free(self, row: int, column: int, length: int) -> bool:
        """Whether so many blank cells are there."""
        cells = self.codes[row, column : column + length]
        return len(cells) == length and bool((cells == BLANK).all())

    def paint(self, codes: Codes, style: str) -> None:
        """Cells over the upper rows of the canvas; blanks cover nothing."""
        used = codes != BLANK
        rows = len(codes)
        np.copyto(self.codes[:rows], codes, where=used)
        np.copyto(self.styles[:rows], np.uint8(NUMBER[style]), where=used)

    def put(self, row: int, columns: npt.NDArray[np.intp], sign: str, style: str) -> None:
        """One sign in some columns of a row, over whatever is there."""
        self.codes[row, columns] = ord(sign)
        self.styles[row, columns] = NUMBER[style]

    def segments(self) -> list[list[Segment]]:
        """Each row as runs of one style. Blanks join the run before them: fewer runs to send."""
        blank = self.codes == BLANK
        position = np.where(blank, 0, np.arange(self.columns))
        styles = np.take_along_axis(self.styles, np.maximum.accumulate(position, axis=1), axis=1)
        text = self.codes.tobytes().decode("utf-32-le")
        turns = np.flatnonzero(np.diff(styles.ravel()) != 0) + 1
        ends = sorted({*turns.tolist(), *range(self.columns, len(text) + 1, self.columns)})
        keys = styles.ravel()[[0, *ends[:-1]]].tolist() if ends else []
        rows: list[list[Segment]] = [[] for _ in range(self.rows)]
        start = 0
        for end, key in zip(ends, keys, strict=True):
            rows[start // self.columns].append((text[start:end], STYLES[key]))
            start = end
        return rows
