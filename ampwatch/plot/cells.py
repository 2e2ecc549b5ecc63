"""Dots to characters: two by four dots a cell, in braille or in ASCII."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ampwatch.plot.raster import Dots

Codes: TypeAlias = npt.NDArray[np.uint32]

ACROSS, DOWN = 2, 4
"""Dots of a cell."""
BLANK = 0x20
BRAILLE = 0x2800
_WEIGHTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint8)
ASCII_CURVES = ("", "+", "x", "o", "*")
"""The first curve is drawn with . - ' and |, each further one with a letter of its own."""


def encode(dots: Dots) -> npt.NDArray[np.uint8]:
    """One byte a cell, its bits in the order of the braille characters."""
    rows, columns = dots.shape[0] // DOWN, dots.shape[1] // ACROSS
    parts = dots.view(np.uint8).reshape(rows, DOWN, columns, ACROSS)
    code = np.zeros((rows, columns), dtype=np.uint8)
    for y in range(DOWN):
        for x in range(ACROSS):
            code |= parts[:, y, :, x] * _WEIGHTS[y, x]
    return code


def _ascii_table() -> Codes:
    """The ASCII character nearest to each braille one."""
    table = np.full(256, ord(" "), dtype=np.uint32)
    for code in range(1, 256):
        used = [y for y in range(DOWN) if any(code & int(_WEIGHTS[y, x]) for x in range(ACROSS))]
        middle = sum(used) / len(used)
        if len(used) >= 3:
            sign = "|"
        elif middle < 1:
            sign = "'"
        elif middle > 2:
            sign = "."
        else:
            sign = "-"
        table[code] = ord(sign)
    return table


_ASCII = _ascii_table()


def characters(code: npt.NDArray[np.uint8], ascii_only: bool, curve: int = 0) -> Codes:
    """Code points; cells without a dot are blanks."""
    if ascii_only:
        sign = ASCII_CURVES[curve % len(ASCII_CURVES)]
        return np.where(code > 0, ord(sign), BLANK).astype(np.uint32) if sign else _ASCII[code]
    return np.where(code > 0, code.astype(np.uint32) + BRAILLE, BLANK).astype(np.uint32)
