"""What made the inf and NaN of skipped steps, as far as the search of backward has told."""

from __future__ import annotations

from ampwatch.record import StepRecord
from ampwatch.record.facts import split_fact

LOSS = "loss"
"""The loss was inf or NaN already."""
OVERFLOW = "overflow"
NAN = "nan"
"""Mathematics in backward: NaN out of finite values, or the infinite derivative at a pole."""
UNKNOWN = "unknown"
"""The gradients held NaN, and no search of backward has told of any operation yet."""
INJECTED = "injected"
"""A key has put one inf in, and nothing else was wrong."""
ALL = frozenset({LOSS, OVERFLOW, NAN, UNKNOWN, INJECTED})
LOSSES = frozenset({LOSS})
BACKWARD = ALL - LOSSES - {INJECTED}


class SkipCauses:
    """Asked at each skipped step.

    An overflow leaves inf, and often NaN as well (inf - inf); so of gradients with NaN the latest
    operation that was found decides, as searches look into some of the steps only.
    """

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest = UNKNOWN

    def of(self, record: StepRecord) -> str:
        """The cause of a skip."""
        if record.loss is not None and record.loss - record.loss != 0:
            return LOSS
        if injected(record):
            return INJECTED
        found = found_in(record)
        if found is not None:
            self._latest = found
            return found
        norm = record.grad_norm
        return self._latest if norm is not None and norm != norm else OVERFLOW


def injected(record: StepRecord) -> bool:
    """Whether the only inf of this step is the one that a key has put in."""
    return "inf-injected" in record.facts and record.nonfinite_values in (None, 1)


def found_in(record: StepRecord) -> str | None:
    """What the search of this very step's backward pass has found."""
    for text in record.facts:
        name, details = split_fact(text)
        if name == "backward-origin":
            return NAN if details.get("kind") == "nan" else OVERFLOW
    return None
