"""What has to be said beside the table: the machine, the start, and what was not measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ampwatch.compare.choice import NAMES, times_words
from ampwatch.compare.figures import FAILED, IMPOSSIBLE, Row
from ampwatch.compare.machine import Machine
from ampwatch.compare.variants import BASELINE
from ampwatch.compare.verdict import Verdict

SLOW_FORMAT, FAST_FORMAT = 0.8, 1.25
"""A matrix product slower or faster than in fp32 by more than noise."""
NO_GAIN = 1.03
SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""The unit roundoff of each format: half of the distance from 1 to the next number."""
ROUNDINGS = 32.0
"""So many of them may come together on the way to a loss."""


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
                f"This {kind} multiplies matrices in {short} {times_words(speed)} times as fast as "
                "in fp32 (measured), but these steps gain nothing by it: casting and all that is "
                "no matrix product outweigh it."
            )


def start_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Whether all started alike, from their first losses."""
    base = next((row.first_loss for row in rows if row.variant.name == BASELINE), None)
    by_dtype: dict[str, float] = {}
    for row in rows:
        loss = row.first_loss
        if loss is None or not math.isfinite(loss):
            continue
        # In one format the forward pass is the same to the last bit.
        same = by_dtype.setdefault(row.variant.dtype, loss)
        roundings = ROUNDINGS * ROUNDING[row.variant.dtype]
        alike = _near(loss, same, ROUNDINGS * ROUNDING["float32"])
        if base is not None and math.isfinite(base):
            alike = alike and _near(loss, base, roundings)
        if not alike:
            yield (
                f"The runs did not start alike: the first loss is {loss:.6g} in "
                f"{NAMES[row.variant.name]} and {base if base is not None else same:.6g} in fp32, "
                "more than rounding explains; the script draws random numbers that no seed fixes, "
                "so losses are not to be compared."
            )
            return


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


def memory_note(rows: Sequence[Row]) -> Iterator[str]:
    """Which memory it is."""
    kinds = {row.memory_kind for row in rows}
    if "peak" in kinds:
        yield "Memory is the most that was in use on the device, by its own count."
    elif "saved" in kinds:
        yield "Memory is what a step saves for backward, counted in bytes, without parameters."
    elif any(row.steps for row in rows):
        yield "Memory could not be counted: the loop packs what its graphs keep (checkpointing)."


def _near(loss: float, other: float, share: float) -> bool:
    return abs(loss - other) <= share * max(abs(loss), abs(other))
