"""Values against what a format can hold, by the format's own rounding."""

from __future__ import annotations

import math

from ampwatch.explain.figures import number, times
from ampwatch.formats import Format


def beyond(value: float, limits: Format) -> bool:
    """Whether a cast to the format makes something else of it than a rounding."""
    return not math.isfinite(value) or abs(limits.nearest(value)) > limits.largest


def fits(value: float, limits: Format) -> str:
    """Whether a format holds a value, in a sentence."""
    largest = f"{number(limits.largest)} is the largest {limits.dtype}"
    if beyond(value, limits):
        return f"{largest}; {number(abs(value))} does not fit."
    return f"{largest}; {number(abs(value))} fits."


def below(largest: float, limits: Format) -> str:
    """How far the largest magnitude is from the end of a format."""
    if largest <= 0:
        return "all of them are 0"
    return (
        f"the largest is {number(largest)}, and {number(limits.largest)} would still fit: "
        f"{times(limits.largest, largest)} as much"
    )
