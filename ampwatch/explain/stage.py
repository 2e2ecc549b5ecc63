"""What one stage of a step says and shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table."""

    cells: tuple[str, ...]
    mark: str = ""
    """"bad" where inf or NaN is, "new" for what this stage has made, or nothing."""


@dataclass(frozen=True, slots=True)
class Block:
    """A small table: its heads, its rows, and a sentence above it."""

    title: str
    head: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the stages that a step goes through."""

    name: str
    """One word, for the row of all stages."""
    title: str
    text: str
    """What happened here, in sentences."""
    blocks: tuple[Block, ...] = ()
    absent: bool = False
    """This loop has no such stage; the text says why."""
    bad: bool = False
    """inf or NaN came up here, was found here, or has kept the step from being taken."""
