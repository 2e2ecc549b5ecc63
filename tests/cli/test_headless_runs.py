"""`ampwatch run --headless` and `ampwatch demo --headless`, as a user starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ampwatch.log import read_log
from ampwatch.record import RunEnd, StepRecord

TRAINING = """
    import sys
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(int(sys.argv[1])):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.ones(2, 4)).square().mean()
        if step == 3:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print("trained", flush=True)
"""


def ampwatch(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ampwatch", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.fixture
def training(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAINING))
    return path


def test_everything_after_the_script_is_the_scripts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:])")
    args = ["--help", "--headless", "-x", "--", "--json", "", "a b", "--steps=3"]
    done = ampwatch("run", "--headless", str(script), *args)
    assert done.stdout == f"{args}\n"


def test_a_strange_script_is_watched_logged_and_summed_up(training: Path) -> None:
    log = training.with_name("run.jsonl")
    done = ampwatch("run", "--headless", "--json", "--log", str(log), str(training), "8")
    assert done.returncode == 0
    summary = json.loads(done.stdout)
    assert summary["status"] == "finished"
    assert summary["steps"] == 8
    assert summary["skipped_steps"] == [3]
    assert summary["final_scale"] == 512.0
    assert summary["dtype"] == "float16"
    assert "trained" in done.stderr
    records = list(read_log(log))
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert [record.step for record in steps if record.skipped] == [3]
    assert records[-1] == RunEnd("finished", 8)


@pytest.mark.parametrize(
    ("chosen", "code"), [("lone-overflow,scale-settling", 3), ("error,warning", 0)]
)
def test_a_chosen_finding_makes_a_run_fail(training: Path, chosen: str, code: int) -> None:
    training.write_text(training.read_text().replace("1024.0", "2.0**30"))
    done = ampwatch("run", "--headless", "--json", "--fail-on", chosen, str(training), "3")
    assert done.returncode == code
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["rule"] == "scale-settling"  # 2^28 is still too much for any gradient
    assert (finding["first_step"], finding["last_step"], finding["count"]) == (0, 2, 3)
    assert ("--fail-on found scale-settling" in done.stderr) == (code == 3)


def test_a_rule_that_does_not_exist_is_refused_before_the_training(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('it ran')")
    done = ampwatch("run", "--headless", "--fail-on", "no-such-rule", str(script))
    assert (done.returncode, done.stdout) == (2, "")


def test_steps_stops_a_strange_script(training: Path) -> None:
    done = ampwatch("run", "--headless", "--json", "--steps", "5", str(training), "1000000")
    assert done.returncode == 0
    assert json.loads(done.stdout)["steps"] == 5


def test_dtype_and_scaler_reach_a_strange_script(training: Path) -> None:
    options = ["--dtype", "bf16", "--scaler", "off"]
    done = ampwatch("run", "--headless", "--json", *options, str(training), "3")
    summary = json.loads(done.stdout)
    assert (summary["dtype"], summary["scaler"]) == ("bfloat16", "off")


@pytest.mark.parametrize(
    ("source", "code", "status"),
    [
        ("pass", 0, "finished"),
        ("raise SystemExit(5)", 5, "failed"),
        ("1 / 0", 1, "failed"),
        ("import os; os._exit(9)", 9, "failed"),
        ("import os; os.abort()", 128 + signal.SIGABRT, "failed"),
    ],
)
def test_the_exit_code_is_the_scripts(tmp_path: Path, source: str, code: int, status: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(source)
    done = ampwatch("run", "--headless", "--json", str(script))
    assert done.returncode == code
    assert json.loads(done.stdout)["status"] == status


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_stops_the_script_too(tmp_path: Path, number: int, code: int) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)")
    running = subprocess.Popen(
        [sys.executable, "-m", "ampwatch", "run", "--headless", str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert running.stdout is not None
    child = int(running.stdout.readline())
    running.send_signal(number)
    assert running.wait(30) == code
    running.stdout.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_demo_takes_its_own_options_and_ours(tmp_path: Path) -> None:
    done = ampwatch("demo", "linear", "--headless", "--json", "--steps", "7", "--seed", "1")
    assert done.returncode == 0
    summary = json.loads(done.stdout)
    assert (summary["name"], summary["steps"]) == ("linear", 7)


def test_the_same_seed_gives_the_same_demo() -> None:
    losses = [
        json.loads(ampwatch("demo", "--headless", "--json", "--steps", "20", "--seed", seed).stdout)
        for seed in ("3", "3", "4")
    ]
    first, second, other = (summary["final_loss"] for summary in losses)
    assert first == second
    assert first != other
