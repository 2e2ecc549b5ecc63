"""What a loop holds: steps, log, summary, close; its log file, also of forked workers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from training_loops import RecordingHost

import ampwatch
from ampwatch.errors import LogError
from ampwatch.log import read_log
from ampwatch.record import RunEnd, RunInfo, StepRecord


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = nn.Linear(4, 1)
    return net, torch.optim.SGD(net.parameters(), lr=1e-3)


def backward(net: nn.Module) -> None:
    net(torch.ones(1, 4)).sum().backward()


def test_steps_passes_items_through_and_gives_the_total(recorded: RecordingHost) -> None:
    net, optimizer = parts()
    watch = ampwatch.hook(net, optimizer)
    seen = []
    for item in watch.steps([5, 6, 7, 8]):
        seen.append(item)
        backward(net)
        optimizer.step()
    assert seen == [5, 6, 7, 8]
    assert recorded.infos[-1].total_steps == 4


def test_total_with_accumulation_counts_steps_and_not_rounds(recorded: RecordingHost) -> None:
    net, optimizer = parts()
    watch = ampwatch.hook(net, optimizer)
    for index, _ in enumerate(watch.steps(range(64))):
        backward(net)
        if index % 4 == 3:
            optimizer.step()
    assert recorded.infos[-1].total_steps == 16


def test_total_over_several_epochs(recorded: RecordingHost) -> None:
    net, optimizer = parts()
    watch = ampwatch.hook(net, optimizer)
    for _ in range(3):
        for _ in watch.steps(range(10)):
            backward(net)
            optimizer.step()
    assert recorded.infos[-1].total_steps == 30


def test_an_endless_iterable_has_the_total_it_is_given(recorded: RecordingHost) -> None:
    net, optimizer = parts()
    watch = ampwatch.hook(net, optimizer)
    for index, _ in enumerate(watch.steps(iter(int, 1), total=50)):
        backward(net)
        optimizer.step()
        if index == 3:
            break
    assert recorded.infos[-1].total_steps == 50


def test_logged_values_come_with_the_next_record(recorded: RecordingHost) -> None:
    net, optimizer = parts()
    watch = ampwatch.hook(net, optimizer)
    watch.log(accuracy=torch.tensor(0.5), loss2=2, nothing=None, word="no")  # type: ignore[arg-type]
    watch.log(vector=torch.ones(3), bad=math.nan)
    for _ in range(2):
        backward(net)
        optimizer.step()
    first, second = (dict(record.metrics) for record in recorded.steps)
    assert first.keys() == {"accuracy", "loss2", "bad"}
    assert (first["accuracy"], first["loss2"]) == (0.5, 2.0)
    assert math.isnan(first["bad"])
    assert second == {}


def test_summary_in_plain_words(recorded: RecordingHost) -> None:
    net, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watch = ampwatch.hook(net, optimizer, scaler)
    assert watch.summary() == "ampwatch saw no optimizer step."
    for gain in (1.0, math.inf):
        scaler.scale(net(torch.ones(1, 4)).sum() * gain).backward()
        scaler.step(optimizer)
        scaler.update()
    text = watch.summary()
    assert "ampwatch saw 2 steps in float32." in text
    assert "scaler dynamic, scale 8, 1 skipped (50.0%)" in text
    watch.close()
    assert watch.summary() == text


def test_a_budget_is_a_share() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        ampwatch.hook(budget=2.0)


def test_a_log_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    original = torch.autograd.backward
    with pytest.raises(LogError, match="cannot write the log"):
        ampwatch.hook(*parts(), log=str(tmp_path / "file" / "run.jsonl"))
    assert torch.autograd.backward is original


def test_the_log_of_a_loop_without_a_dashboard(tmp_path: Path) -> None:
    net, optimizer = parts()
    path = tmp_path / "run.jsonl"
    with ampwatch.hook(net, optimizer, log=str(path), name="mine"):
        for _ in range(3):
            backward(net)
            optimizer.step()
    records = list(read_log(path))
    infos = [record for record in records if isinstance(record, RunInfo)]
    assert {info.name for info in infos} == {"mine"}
    assert infos[-1].device == "cpu"
    assert infos[-1].parameters == 5
    assert [r.step for r in records if isinstance(r, StepRecord)] == [0, 1, 2]
    assert records[-1] == RunEnd("finished", 3, None)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (KeyboardInterrupt(), "stopped", None),
        (OSError("gone"), "failed", "OSError: gone"),
    ],
)
def test_how_a_loop_ended(
    error: BaseException, status: str, text: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(type(error)), ampwatch.hook(*parts(), log=str(path)):
        raise error
    assert list(read_log(path))[-1] == RunEnd(status, 0, text)


def test_a_forked_worker_writes_nothing(tmp_path: Path) -> None:
    net, optimizer = parts()
    path = tmp_path / "run.jsonl"
    watch = ampwatch.hook(net, optimizer, log=str(path))
    backward(net)
    optimizer.step()
    pid = os.fork()
    if pid == 0:
        try:
            backward(net)
            optimizer.step()
            watch.close()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    backward(net)
    optimizer.step()
    watch.close()
    records = list(read_log(path))
    assert [r.step for r in records if isinstance(r, StepRecord)] == [0, 1]
    assert [r for r in records if isinstance(r, RunEnd)] == [RunEnd("finished", 2, None)]


SCRIPT = """
import torch, ampwatch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
ampwatch.hook(net, optimizer)
for _ in range(2):
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "end"),
    [
        ("", RunEnd("finished", 2, None)),
        ("raise ValueError('no')", RunEnd("failed", 2, "ValueError: no")),
    ],
)
def test_a_script_that_never_closes_its_hook(ending: str, end: RunEnd, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(ending=ending)],
        env={**os.environ, "AMPWATCH_LOG": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "", "the hook is silent"
    assert ("ValueError" in done.stderr) == bool(ending)
    assert list(read_log(path))[-1] == end
