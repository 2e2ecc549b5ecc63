"""Numbers and short phrases as a person reads them, the same wherever they are shown."""

from __future__ import annotations

import math


def scale_words(scale: float | None) -> str:
    """A loss scale: a power of two as 2^n, as on the plot; other values as they are."""
    if scale is None:
        return "unknown"
    if math.isfinite(scale) and scale > 0:
        mantissa, exponent = math.frexp(scale)
        if mantissa == 0.5 and scale != 1:
            return f"2^{exponent - 1}"
    return number_words(scale)


def number_words(value: float | None) -> str:
    """A number in few characters: 65536, 0.00123, 1.2e-07, inf, NaN."""
    if value is None:
        return "unknown"
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3g}"


def share_words(part: float, whole: float) -> str:
    """A share in percent: 0.05 %, 3.2 %, 41 %."""
    if whole <= 0:
        return "0 %"
    percent = 100 * part / whole
    if percent == 0 or percent >= 10:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %"


def count_words(count: int, noun: str) -> str:
    """1 step, 2 steps, 1,200 steps."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def were(count: int) -> str:
    """The verb after a count: 1 step was, 2 steps were."""
    return "was" if count == 1 else "were"


def ordinal(number: int) -> str:
    """2nd, 3rd, 11th, 16th, 21st."""
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def seconds_words(seconds: float) -> str:
    """How long: 0.4 s, 12 s, 1 min 05 s, 2 h 10 min."""
    if 0 < seconds < 1:
        return f"{seconds:.1f} s"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def power_words(scale: float) -> str:
    """A loss scale always as a power of two: 2^16, 2^-3, 2^15.58."""
    if not (math.isfinite(scale) and scale > 0):
        return number_words(scale)
    power = math.log2(scale)
    return f"2^{round(power)}" if power == round(power) else f"2^{power:.2f}"


def rate_words(rate: float) -> str:
    """Steps a second: 380/s, 12.5/s, 0.25/s."""
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"
