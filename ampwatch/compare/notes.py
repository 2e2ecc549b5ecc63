"""What has to be said beside the table: the machine, the failures, and which memory it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ampwatch.compare.choice import times_words
from ampwatch.compare.figures import FAILED, IMPOSSIBLE, Row
from ampwatch.compare.machine import Machine
from ampwatch.compare.verdict import Verdict
from ampwatch.formats import SHORT

SLOW_FORMAT, FAST_FORMAT = 0.8, 1.25
"""A matrix product slower or faster than in fp32 by more than noise."""
NO_GAIN = 1.03


def machine_notes(machine: Machine | None, rows: Sequence[Row]) -> Iterator[str]:
    """What the machine itself makes of the formats."""
    if machine is None:
        return
    kind = "CPU" if machine.device == "cpu" else "device"
    for dtype, speed in machine.speeds.items():
        short = SHORT.get(dtype, dtype)
        ratios = [row.ratio for row in rows if row.variant.dtype == dtype and row.ratio]
        if 0 < speed < SLOW_FORMAT:
            yield (
                f"This {kind} is slow in {short}: a matrix product takes {times_words(1 / speed)} "
                "times as long as in fp32 (measured)."
            )
        elif speed > FAST_FORMAT and ratios and min(ratios) > NO_GAIN:
            yield (
                f"This {kind} multiplies matrices {times_words(speed)} times as fast in {short} as "
                "in fp32 (measured), but these steps gain nothing by it: casting and all that is "
                "no matrix product outweigh it."
            )


def row_notes(rows: Sequence[Row], verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Why a variant failed, was not possible, or is in trouble; the same reason once."""
    told: dict[str, list[str]] = {}
    for row, verdict in zip(rows, verdicts, strict=True):
        if not verdict.why:
            continue
        if row.status in (FAILED, IMPOSSIBLE) or not verdict.good:
            told.setdefault(verdict.why, []).append(row.variant.words)
    for why, names in told.items():
        yield f"{' / '.join(names)}: {why}"


def time_note(rows: Sequence[Row]) -> Iterator[str]:
    """How far the rounds differ, where that is too far to compare times."""
    spans = [
        f"{times_words(row.ratio_low or 0.0)} to {times_words(row.ratio_high or 0.0)} "
        f"({row.variant.words})"
        for row in rows
        if row.unsure
    ]
    if spans:
        yield f"Times are unsure: half of the ratios to fp32 lie in {'; '.join(spans)}."


def memory_note(rows: Sequence[Row]) -> Iterator[str]:
    """Which memory it is."""
    kinds = {row.memory_kind for row in rows}
    if "peak" in kinds:
        yield "Memory is the most that was in use on the device, by its own count."
    elif "saved" in kinds:
        yield "Memory is what a step saves for backward, counted in bytes, without parameters."
    elif any(row.steps for row in rows) and all(row.seconds is None for row in rows):
        yield "Memory was not counted: the runs ended before or in the first steps to be timed."
    elif any(row.steps for row in rows):
        yield "Memory could not be counted: the loop packs what its graphs keep (checkpointing)."
