"""The signs that stand on a plot beside its curves; each is told apart without colour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signs:
    skip: str
    """At the bottom, where a step was skipped."""
    knob: str
    """All the way down, where a knob was turned."""
    line: str
    """All the way across, at a reference value."""
    bad: str = "!"
    """At the top, where a value cannot be drawn: NaN, an infinity, 0 on a log axis."""


UNICODE = Signs(skip="▼", knob="┊", line="╌")
ASCII = Signs(skip="v", knob=":", line="~")


def signs(ascii_only: bool) -> Signs:
    return ASCII if ascii_only else UNICODE
