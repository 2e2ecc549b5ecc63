"""What a field of a record may hold: each reader gives the value, or says what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ampwatch.record.shapes import LARGEST, SPECIAL

_T = TypeVar("_T")


def number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    if type(value) is str and value in SPECIAL:
        return SPECIAL[value]
    raise TypeError(f"{short(value)} is not a number")


def time(value: Any) -> float:
    seconds = number(value)
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is not a time")
    return seconds


def integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{short(value)} is not a whole number")
    if not -LARGEST <= value <= LARGEST:
        raise ValueError("a whole number beyond 64 bits")
    return value


def count(value: Any) -> int:
    if integer(value) < 0:
        raise ValueError(f"{value} is negative")
    return int(value)


def text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{short(value)} is not text")
    if value.isascii():
        return value
    # JSON can spell half a surrogate pair; nothing that prints could take it.
    return value.encode("utf-8", "backslashreplace").decode()


def truth(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{short(value)} is neither true nor false")
    return value


def short(value: Any) -> str:
    """The value for a message: it may be anything, of any length and depth."""
    return (
        repr(value)[:60] if isinstance(value, (str, float, bool)) else f"a {type(value).__name__}"
    )


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{short(value)} is not a list")
    return tuple(map(text, value))


def numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{short(value)} is not a list")
    return tuple(map(number, value))


def integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{short(value)} is not a list")
    return tuple(map(integer, value))


def metrics(value: Any) -> Mapping[str, float]:
    if not isinstance(value, dict):
        raise TypeError(f"{short(value)} is not an object")
    return {text(name): number(item) for name, item in value.items()}


def optional(body: Mapping[str, Any], name: str, read: Callable[[Any], _T]) -> _T | None:
    value = body.get(name)
    return None if value is None else read(value)
