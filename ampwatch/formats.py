"""The limits of number formats: pure data, checked against torch in the tests."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format.

    A cast rounds to the nearest value, ties to even. So what is at most half of the smallest
    subnormal becomes 0, and a little more than the largest value still rounds down to it.
    """

    name: str
    dtype: str
    """Its name in torch."""
    lowest: int
    """The smallest subnormal is 2^lowest."""
    normal: int
    """The smallest normal is 2^normal; below it precision is lost bit by bit."""
    largest: float
    overflows_to: str
    """What a cast in torch makes of larger values: "inf", or the largest value itself."""

    @property
    def flushed(self) -> int:
        """What is below 2^flushed becomes 0: half of the smallest subnormal."""
        return self.lowest - 1

    def nearest(self, value: float) -> float:
        """What a cast to this format makes of a value."""
        if value != value or value == 0:
            return value
        beyond = math.copysign(float(self.overflows_to), value)
        if math.isinf(value):
            return beyond
        # frexp's mantissa lies in [0.5, 1), so the value is at least 2^(exponent - 1).
        power = max(math.frexp(value)[1] - 1, self.normal)
        step = 2.0 ** (power - (self.normal - self.lowest))
        # Dividing by a power of two is exact, and round() takes ties to even.
        rounded = math.copysign(round(abs(value) / step) * step, value)
        return beyond if abs(rounded) > self.largest else rounded


FLOAT16 = Format("fp16", "float16", -24, -14, 65504.0, "inf")
BFLOAT16 = Format("bf16", "bfloat16", -133, -126, (2 - 2.0**-7) * 2.0**127, "inf")
E4M3 = Format("fp8 e4m3", "float8_e4m3fn", -9, -6, 448.0, "448")
"""Without infinities ("fn"). A cast in torch 2.13 cuts everything larger, infinities included, to
448: no error is seen, but the value is wrong. Earlier versions of torch made NaN of it."""
E5M2 = Format("fp8 e5m2", "float8_e5m2", -16, -14, 57344.0, "inf")
FLOAT32 = Format("fp32", "float32", -149, -126, (2 - 2.0**-23) * 2.0**127, "inf")

FORMATS = (FLOAT16, BFLOAT16, E4M3, E5M2)
"""Those that the range view goes through."""
BY_DTYPE = {form.dtype: form for form in (*FORMATS, FLOAT32)}
SHORT = {**{form.dtype: form.name for form in BY_DTYPE.values()}, "float64": "fp64"}
"""What a dtype is called where room is short."""
