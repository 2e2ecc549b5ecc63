"""The value axis: limits rounded outward to good numbers, ticks, and where a value lies.

Limits are rounded so that they change rarely: as long as they stay, the drawn frame is reused.
All arithmetic on limits and ticks is exact (fractions), so that 1e308 and the smallest denormal
are numbers like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ampwatch.history import Floats
from ampwatch.plot import labels

FINE = 12
"""Parts of the range to which limits are rounded: at most a sixth of the height stays empty."""
NARROW = 3.0
"""Below this ratio of largest to smallest, ticks of a log axis are chosen as on a linear one."""
SAME = 1e-12
"""Relative difference under which two values count as one: a double holds few ticks between."""
LONG = 10
"""Characters a label may have where shorter ones would not tell the ticks apart."""
GOOD = (1, 2, 5)
EVERY_DECADE = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
EVERY_DOUBLING = tuple(2**power for power in range(12))


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    """Place on the axis: 0 is its bottom, 1 its top."""
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    kind: str
    lo: float
    hi: float
    """Limits after the transform: the logarithm, or the value divided by ``2**shift``."""
    shift: int
    ticks: tuple[Tick, ...]

    def place(self, values: Floats) -> Floats:
        """Where values lie from 0 (bottom) to 1 (top); NaN where they are not on the axis."""
        with np.errstate(all="ignore"):
            if self.kind == "linear":
                moved = np.ldexp(values, -self.shift)
            else:
                moved = np.log2(values) if self.kind == "log2" else np.log10(values)
            placed: Floats = (moved - self.lo) / (self.hi - self.lo)
        placed[~np.isfinite(placed)] = np.nan
        return placed


@lru_cache(maxsize=256)
def value_axis(kind: str, lo: float, hi: float, most_ticks: int, floor_zero: bool = False) -> Axis:
    """The axis for finite values from ``lo`` to ``hi`` (positive ones on a log axis)."""
    if kind == "log2":
        return _log2(lo, hi, most_ticks)
    if kind == "log10":
        return _log10(lo, hi, most_ticks)
    if floor_zero:
        lo, hi = min(lo, 0.0), max(hi, 1.0)
    return _linear(lo, hi, most_ticks, whole=floor_zero)


def bare_axis(kind: str) -> Axis:
    """The axis of a plot without a single value to draw."""
    return Axis(kind, -1.0, 1.0, 0, ())


def _linear(lo: float, hi: float, most_ticks: int, *, whole: bool) -> Axis:
    largest = max(abs(lo), abs(hi))
    shift = math.frexp(largest)[1]
    if math.ldexp(hi, -shift) - math.ldexp(lo, -shift) <= SAME:
        middle = math.ldexp(hi, -shift)
        reach = abs(middle) / 2 or 1.0
        tick = Tick(0.5, labels.number(hi))
        return Axis("linear", middle - reach, middle + reach, shift, (tick,))
    low, high, chosen = _nice(Fraction(lo), Fraction(hi), most_ticks, whole=whole)
    unit = Fraction(2) ** shift
    ticks = tuple(Tick(float((value - low) / (high - low)), text) for value, text in chosen)
    return Axis("linear", float(low / unit), float(high / unit), shift, ticks)


def _log2(lo: float, hi: float, most_ticks: int) -> Axis:
    low, high = math.floor(math.log2(lo)), math.ceil(math.log2(hi))
    if lo == hi:
        middle = math.log2(lo)
        return _log("log2", middle - 1, middle + 1, _powers(low - 1, high + 1, most_ticks))
    return _log("log2", low, high, _powers(low, high, most_ticks))


def _powers(low: int, high: int, most_ticks: int) -> list[tuple[float, str]]:
    exponents = _thin(range(low, high + 1), EVERY_DOUBLING, most_ticks)
    return [(exponent, labels.power_of_two(exponent)) for exponent in exponents]


def _thin(exponents: Sequence[int], spacings: Sequence[int], most_ticks: int) -> list[int]:
    """The multiples of a good number among consecutive exponents, or only the two ends."""
    for every in spacings:
        chosen = [exponent for exponent in exponents if exponent % every == 0]
        if len(chosen) <= most_ticks:
            break
    return chosen if len(chosen) >= 2 else [exponents[0], exponents[-1]]


def _log10(lo: float, hi: float, most_ticks: int) -> Axis:
    low, high = math.log10(lo), math.log10(hi)
    if high - low <= SAME:
        return _log("log10", low - 0.5, low + 0.5, [(low, labels.number(lo))])
    if high - low < math.log10(NARROW):
        bottom, top, chosen = _nice(Fraction(lo), Fraction(hi), most_ticks, whole=False)
        ticks = [(_log10_of(value), text) for value, text in chosen]
        return _log("log10", _log10_of(bottom), _log10_of(top), ticks)
    rungs = _rungs(low, high)
    powers = [power for _, digit, power in rungs if digit == 1]
    if len(rungs) <= most_ticks:
        ticks = [(at, labels.decimal(digit, power, 5)) for at, digit, power in rungs]
    elif len(powers) >= 2:
        ticks = [
            (float(power), labels.power_of_ten(power))
            for power in _thin(powers, EVERY_DECADE, most_ticks)
        ]
    else:
        ticks = [
            (at, labels.decimal(digit, power, 5)) for at, digit, power in (rungs[0], rungs[-1])
        ]
    return _log("log10", rungs[0][0], rungs[-1][0], ticks)


def _rungs(low: float, high: float) -> list[tuple[float, int, int]]:
    """The ladder 1, 2, 5, 10, 20 … from the last rung under ``low`` to the first over ``high``."""
    ladder = [
        (math.log10(digit) + power, digit, power)
        for power in range(math.floor(low) - 1, math.ceil(high) + 2)
        for digit in GOOD
    ]
    slack = 1e-9  # log10 of a rung itself may be rounded across it
    start = max(index for index, (at, _, _) in enumerate(ladder) if at <= low + slack)
    stop = min(index for index, (at, _, _) in enumerate(ladder) if at >= high - slack)
    return ladder[start : max(stop, start + 1) + 1]


def _log(kind: str, lo: float, hi: float, chosen: list[tuple[float, str]]) -> Axis:
    ticks = (Tick((value - lo) / (hi - lo), text) for value, text in chosen)
    return Axis(kind, lo, hi, 0, tuple(tick for tick in ticks if -1e-9 <= tick.at <= 1 + 1e-9))


def _log10_of(value: Fraction) -> float:
    return math.log10(value.numerator) - math.log10(value.denominator)


def _nice(
    lo: Fraction, hi: Fraction, most_ticks: int, *, whole: bool
) -> tuple[Fraction, Fraction, list[tuple[Fraction, str]]]:
    """Limits rounded outward, and the ticks between them as exact values with their labels."""
    digit, power = _good_step((hi - lo) / FINE)
    if whole and power < 0:
        digit, power = 1, 0
    step = digit * Fraction(10) ** power
    low, high = math.floor(lo / step) * step, math.ceil(hi / step) * step
    while True:
        step = digit * Fraction(10) ** power
        numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
        if len(numbers) <= most_ticks:
            break
        digit, power = _next_step(digit, power)
    if len(numbers) < 2:
        finest = min(_power_of(low), _power_of(high))
        unit = Fraction(10) ** finest
        return low, high, _labelled([int(low / unit), int(high / unit)], finest)
    return low, high, _labelled([number * digit for number in numbers], power)


def _labelled(numbers: list[int], power: int) -> list[tuple[Fraction, str]]:
    """Values with labels; where labels cannot tell two ticks apart, the first one has it."""
    unit = Fraction(10) ** power
    texts = [labels.decimal(number, power) for number in numbers]
    if len(set(texts)) < len(texts):
        texts = [labels.decimal(number, power, LONG) for number in numbers]
    return [
        (number * unit, text)
        for index, (number, text) in enumerate(zip(numbers, texts, strict=True))
        if index == 0 or text != texts[index - 1]
    ]


def _good_step(at_most: Fraction) -> tuple[int, int]:
    """The largest of 1, 2, 5 times a power of ten that is not larger."""
    power = math.floor(_log10_of(at_most))
    unit = Fraction(10) ** power
    if unit > at_most:  # the logarithm was rounded up
        power, unit = power - 1, unit / 10
    return max(digit for digit in GOOD if digit * unit <= at_most), power


def _next_step(digit: int, power: int) -> tuple[int, int]:
    return {1: (2, power), 2: (5, power), 5: (1, power + 1)}[digit]


def _power_of(value: Fraction) -> int:
    """The largest power of ten that goes into a decimal value (at most 0)."""
    power = 0
    while value * Fraction(10) ** -power % 1 and power > -400:
        power -= 1
    return power
