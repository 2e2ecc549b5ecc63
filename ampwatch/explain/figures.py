"""Numbers of a step in few characters, without hiding what is told with them."""

from __future__ import annotations

import math

from ampwatch.formats import BY_DTYPE, SHORT, Format
from ampwatch.words import scale_words

ROUNDED, WHOLE_POWERS = 1e7, 1e9
"""Whole numbers below the first are written out: 65504 is known by its digits. So are powers of
two below the second, as scales are; other numbers below the first are rounded to whole ones."""


def number(value: float | None, digits: int = 4) -> str:
    """65504, 203.2, 1.02e-6, inf."""
    if value is None:
        return "–"
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    whole = value == int(value) and (
        size < ROUNDED or (size < WHOLE_POWERS and math.frexp(size)[0] == 0.5)
    )
    if whole or 10**digits <= size < ROUNDED:
        return f"{value:.0f}"
    mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def exact(value: float | None) -> str:
    """Seven digits, as many as a float32 has: weights before and after differ in the last ones."""
    return number(value, 7)


def change(before: float, after: float) -> str:
    """By how much, with its sign."""
    moved = after - before
    return "0" if moved == 0 else f"{'+' if moved > 0 else ''}{number(moved, 3)}"


def scale_of(scale: float) -> str:
    """65536 (2^16); no power of two stands for itself."""
    power = scale_words(scale)
    return f"{number(scale)} ({power})" if power.startswith("2^") else number(scale)


def dtype(name: str | None) -> str:
    return "–" if name is None else SHORT.get(name, name)


def dtypes(names: tuple[str, ...]) -> str:
    """The same, several: fp32, or fp16+fp32 in the order of the arguments without repeats."""
    return "+".join(dict.fromkeys(map(dtype, names))) or "–"


def form(name: str | None) -> Format | None:
    """The limits of a dtype, where they are known."""
    return BY_DTYPE.get(name or "")


def place(index: tuple[int, ...]) -> str:
    """[3, 17]; a tensor of no dimension has one value."""
    return f"[{','.join(map(str, index))}]"


def counted(count: int, one: str, several: str | None = None) -> str:
    """1 value, 2 values, 1,200 values."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def times(larger: float, smaller: float) -> str:
    """How many times one goes into the other: 93 times."""
    return f"{number(larger / smaller, 3)} times"
