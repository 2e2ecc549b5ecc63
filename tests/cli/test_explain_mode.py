"""Explain mode from a real terminal to a real loop and back, and into the log."""

from __future__ import annotations

from pathlib import Path

from terminals import terminal

from ampwatch.log import read_log
from ampwatch.record import StepAnatomy, StepRecord


def test_a_step_of_a_demo_is_gone_through_in_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    with terminal("demo", "linear", "--seed", "0", "--log", str(log)) as shown:
        shown.wait_for("steps/s")
        shown.press("e")
        shown.wait_for("Forward: what autocast made of each operation")
        for title in ("Loss: one number", "Scaled loss: where", "Gradients: as backward"):
            shown.press(".")
            shown.wait_for(title)
        shown.press("q")
        assert shown.end() == 130
        assert shown.restored()
    records = list(read_log(log))
    (anatomy,) = (record for record in records if isinstance(record, StepAnatomy))
    names = [operation.name for operation in anatomy.operations]
    assert names == ["linear", "relu", "linear", "mse_loss"]
    assert [operation.output for operation in anatomy.operations][:3] == ["float16"] * 3
    assert anatomy.followed is not None
    last = [record for record in records if isinstance(record, StepRecord)][-1]
    assert last.step == anatomy.step  # the run has paused right after it
    assert last.loss == anatomy.loss
    assert last.scale == anatomy.scale
    with terminal("view", str(log)) as shown:
        shown.wait_for("STOPPED")
        shown.press("e")
        shown.wait_for(f"step {anatomy.step} taken apart")
        shown.press("q")
        assert shown.end() == 0
