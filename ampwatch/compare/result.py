"""Everything a comparison has found out, as one object for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ampwatch.compare.choice import Choice, choose
from ampwatch.compare.figures import FAILED, IMPOSSIBLE, Ended, Row, rows
from ampwatch.compare.machine import Machine
from ampwatch.compare.notes import machine_notes, memory_note, row_notes, time_note
from ampwatch.compare.start import start_note
from ampwatch.compare.variants import BASELINE
from ampwatch.compare.verdict import Verdict, verdicts
from ampwatch.headless.summary import NO_STEPS


@dataclass(frozen=True, slots=True)
class Result:
    """A comparison of runs that have ended, finished or not."""

    target: str
    seed: int
    steps: int
    """How many were asked for."""
    paired: bool
    """Whether step times were taken in turns."""
    runs: Sequence[Ended]
    machine: Machine | None = None
    rows: list[Row] = field(init=False)
    verdicts: list[Verdict] = field(init=False)
    choice: Choice = field(init=False)

    def __post_init__(self) -> None:
        made = rows(self.runs, BASELINE)
        judged = verdicts(made)
        object.__setattr__(self, "rows", made)
        object.__setattr__(self, "verdicts", judged)
        object.__setattr__(self, "choice", choose(made, judged))

    @property
    def nothing_to_compare(self) -> str | None:
        """Why there is nothing to compare, where no variant has got anywhere."""
        first = self.rows[0]
        if all(row.status == IMPOSSIBLE for row in self.rows):
            return first.error
        if any(row.steps for row in self.rows):
            return None
        if all(row.status == FAILED for row in self.rows):
            return f"it failed before its first step: {first.error}"
        return NO_STEPS

    @property
    def device(self) -> str | None:
        return next((run.track.device for run in self.runs if run.track.device), None)

    def notes(self) -> list[str]:
        """What is to be said besides, a sentence each."""
        start = start_note(self.rows)
        notes = [] if start is None else [start]
        notes += [*time_note(self.rows), *machine_notes(self.machine, self.rows)]
        notes += [*row_notes(self.rows, self.verdicts), *memory_note(self.rows)]
        if self.paired and any(_out_of_memory(row.error or "") for row in self.rows):
            notes.append("All runs were in memory together: --one-at-a-time needs that of one.")
        if not self.paired:
            notes.append(
                "The runs came one after the other, so what else the machine did may be in the "
                "differences of their times."
            )
        return notes

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        machine = self.machine
        return {
            "target": self.target,
            "seed": self.seed,
            "steps": self.steps,
            "paired": self.paired,
            "device": self.device,
            "machine": None
            if machine is None
            else {
                "device": machine.device,
                "name": machine.name,
                "matrix_product_speed": dict(machine.speeds),
            },
            "choice": {"variant": self.choice.variant, "sentence": self.choice.sentence},
            "notes": self.notes(),
            "runs": [_run(*pair) for pair in zip(self.rows, self.verdicts, strict=True)],
        }


def _out_of_memory(error: str) -> bool:
    """torch's own words, or the system's way of saying it."""
    return "out of memory" in error.lower() or "SIGKILL" in error or "MemoryError" in error


def _run(row: Row, verdict: Verdict) -> dict[str, Any]:
    return {
        "variant": row.variant.name,
        "dtype": row.variant.dtype,
        "scaler": row.variant.scaler,
        "status": row.status,
        "error": row.error,
        "verdict": verdict.words,
        "why": verdict.why or None,
        "steps": row.steps,
        "step_seconds": row.seconds,
        "time_ratio": row.ratio,
        "time_ratio_quartiles": None if row.ratio is None else [row.ratio_low, row.ratio_high],
        "memory_bytes": None if row.memory is None else int(row.memory),
        "memory_kind": row.memory_kind,
        "memory_ratio": row.memory_ratio,
        "first_loss": row.first_loss,
        "final_loss": row.final_loss,
        "last_loss": row.last_loss,
        "loss_difference": row.difference,
        "skipped": row.skipped,
        "flushed_share": row.flushed,
        "final_scale": row.final_scale,
        "findings": [finding.as_json() for finding in row.findings],
    }
