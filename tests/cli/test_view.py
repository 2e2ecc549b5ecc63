"""`ampwatch view` in a real terminal."""

from __future__ import annotations

from pathlib import Path

from recorded_logs import INFO, collapse, step, write_log
from terminals import terminal

from ampwatch.record import RunEnd


def test_a_recorded_run_is_shown_and_left(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.jsonl", collapse())
    with terminal("view", str(log)) as shown:
        shown.wait_for("FINISHED")
        shown.wait_for("skipped 40 steps in a row")
        shown.press("r")
        shown.wait_for("This is a recording")
        shown.press("q")
        assert shown.end() == 0
        assert shown.restored()


def test_a_growing_log_is_followed(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.jsonl", [INFO, step(0, 8.0)])
    with terminal("view", "--follow", str(log)) as shown:
        shown.wait_for("FOLLOWING")
        write_log(log, [step(1, 8.0), RunEnd("finished", 2)])
        shown.wait_for("FINISHED")
        shown.press("q")
        assert shown.end() == 0
