"""A log whose writer was killed gets its last line, and nothing broken stays before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampwatch.log.mend import finish_log
from ampwatch.record import RunEnd, StepRecord, to_json

STEP = to_json(StepRecord(0, 0.5, loss=1.0))
END = RunEnd("failed", 1, "killed by signal 9 (SIGKILL)")


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (f"{STEP}\n", [STEP]),
        (f"{STEP}\n{STEP[:20]}", [STEP]),
        (f"{STEP}\n{STEP}", [STEP, STEP]),
        (STEP[:20], []),
        (STEP, [STEP]),
        ("", []),
    ],
)
def test_the_log_ends_with_the_end(tmp_path: Path, before: str, kept: list[str]) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text(before)
    finish_log(str(log), END)
    assert log.read_text() == "".join(f"{line}\n" for line in [*kept, to_json(END)])


def test_half_a_character_is_half_a_line(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_bytes(STEP.encode() + b'\n{"type":"step","origin":"\xc3')
    finish_log(str(log), END)
    assert log.read_text() == f"{STEP}\n{to_json(END)}\n"


def test_a_log_that_is_not_there_is_the_callers_to_report(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        finish_log(str(tmp_path / "none.jsonl"), END)
