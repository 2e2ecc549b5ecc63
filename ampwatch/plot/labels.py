"""How numbers are written on axes: exact, short, and with nothing a terminal could lack."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 6
"""Characters from which on a decimal number gives way to a power of ten."""
SIGNIFICANT = 4
UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def decimal(digits: int, exponent: int, longest: int = LONGEST) -> str:
    """``digits * 10**exponent``, worked out in whole numbers: no 0.30000000000000004.

    >>> decimal(3, -1), decimal(25, 5), decimal(-2, -7)
    ('0.3', '2.5e6', '-2e-7')
    """
    if digits == 0:
        return "0"
    sign, text = ("-" if digits < 0 else ""), str(abs(digits))
    plain = _plain(text, exponent)
    if len(plain) <= longest:
        return sign + plain
    stripped = text.rstrip("0")
    power = exponent + len(text) - 1
    tail = stripped[1:SIGNIFICANT]
    return f"{sign}{stripped[0]}{'.' if tail else ''}{tail}e{power}"


def power_of_ten(exponent: int) -> str:
    """1e-3, 0.01, 1, 100, 1e3: whichever is shorter.

    >>> [power_of_ten(k) for k in (-3, -2, 0, 2, 3)]
    ['1e-3', '0.01', '1', '100', '1e3']
    """
    return decimal(1, exponent, longest=len(f"1e{exponent}"))


def power_of_two(exponent: int) -> str:
    return f"2^{exponent}"


def number(value: float) -> str:
    """One number with five digits, for the only tick of an axis.

    >>> number(0.25), number(1234567.0), number(1e-300)
    ('0.25', '1.2346e6', '1e-300')
    """
    mantissa, _, power = f"{value:.5g}".partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def steps(numbers: Sequence[int], every: int) -> list[str]:
    """Step numbers of one axis ``every`` so many steps, all in the same unit.

    >>> steps([0, 5000, 10000], 5000), steps([0, 500_000, 1_000_000], 500_000)
    (['0', '5k', '10k'], ['0', '0.5M', '1M'])
    """
    largest = max((abs(number) for number in numbers), default=0)
    if largest >= 10_000:
        for unit, sign in UNITS:
            whole = every % unit == 0
            if largest >= unit and (whole or (every * 10 % unit == 0 and largest < 1000 * unit)):
                return [_in_unit(number, unit, sign) for number in numbers]
    return [str(number) for number in numbers]


def _in_unit(value: int, unit: int, sign: str) -> str:
    if value == 0:
        return "0"
    whole, tenth = divmod(abs(value) * 10 // unit, 10)
    return f"{'-' if value < 0 else ''}{whole}{f'.{tenth}' if tenth else ''}{sign}"


def _plain(digits: str, exponent: int) -> str:
    if exponent >= 0:
        # Longer than any limit: the zeros need not be written to be counted.
        return digits + "0" * min(exponent, 20)
    places = min(-exponent, 400)
    digits = digits.zfill(places + 1)
    return f"{digits[:-places]}.{digits[-places:]}"
