"""Numbers as a person reads them at a glance."""

from __future__ import annotations

import math

MINUS = "\u2212"


def figure(value: float | None) -> str:
    """Three significant digits, however large or small."""
    if value is None:
        return "–"
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else f"{MINUS}inf"
    size = abs(value)
    if size == 0:
        return "0"
    if 1e-3 <= size < 1e4:
        digits = max(0, 2 - math.floor(math.log10(size)))
        text = f"{value:.{digits}f}"
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", MINUS)


def power_of_two(value: float | None) -> str:
    """A scale as 2^n where it is one, which with GradScaler's defaults is always."""
    if value is None:
        return "–"
    if not math.isfinite(value) or value <= 0:
        return figure(value)
    mantissa, exponent = math.frexp(value)
    if mantissa == 0.5:
        return f"2^{exponent - 1}".replace("-", MINUS)
    return figure(value)


def share(part: float, whole: float) -> str:
    """A share in per cent with as many digits as tell something."""
    if whole <= 0:
        return "0 %"
    return percent(part / whole)


def percent(value: float) -> str:
    hundredths = 100 * value
    if not math.isfinite(hundredths):
        return figure(value)
    if hundredths == 0:
        return "0 %"
    if abs(hundredths) < 0.1:
        return "<0.1 %" if hundredths > 0 else f"{hundredths:.1g} %"
    return f"{hundredths:.1f} %" if abs(hundredths) < 10 else f"{hundredths:.0f} %"


def gain(value: object) -> str:
    """A gain as a factor: ×10, ×0.01."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "×1"
    text = f"{value:g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.0e}"
    return "×" + text.replace("e+0", "e").replace("e-0", "e-").replace("-", MINUS)
