"""`ampwatch compare`, as a user starts it, on small scripts."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from ampwatch.cli import main
from ampwatch.compare import front
from ampwatch.compare.machine import Machine, measure
from ampwatch.launch.child import ChildProcess
from ampwatch.log import read_log
from ampwatch.record import RunEnd, StepRecord

HEAD = """
    import sys
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, eps=1e-20)
    weights = torch.ones(8, 1) / 8
"""
SMALL_LOSS = """
    scaler = torch.amp.GradScaler("cpu")
    while True:
        x = torch.randn(32, 8)
        with torch.autocast("cpu", torch.float16):
            loss = nn.functional.mse_loss(model(x), x @ weights + 1) * 1e-8
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
"""Its gradients are 0 in fp16 without a scaler. It never ends by itself."""
PLAIN = """
    for step in range(int(sys.argv[1])):
        x = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(x), x @ weights + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TROUBLED = """
    for step in range(60):
        x = torch.randn(32, 8)
        with torch.autocast("cpu", torch.float16):
            if step == 7 and torch.get_autocast_dtype("cpu") is torch.bfloat16:
                raise ValueError("[bold]not in bf16")
            # Far beyond 65504: the first gradients of the fp16 layers are inf already.
            loss = nn.functional.mse_loss(model(x) * 1e4, x @ weights * 1e4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    speeds = {"float16": 0.25, "bfloat16": 1.0}
    monkeypatch.setattr(front, "measure", lambda device: Machine(device, "made", speeds))
    for name, loop in (("small", SMALL_LOSS), ("plain", PLAIN), ("troubled", TROUBLED)):
        Path(f"{name}.py").write_text(textwrap.dedent(HEAD + loop))
    return tmp_path


def compare(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["compare", *arguments], prog_name="ampwatch")
    assert isinstance(left.value.code, int)
    children = [each for each in gc.get_objects() if isinstance(each, ChildProcess)]
    assert all(child.returncode is not None for child in children)  # each has been waited for
    return left.value.code


def test_five_variants_of_a_strange_script(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--json", "--steps", "60", "--seed", "3", "--log", "logs", "small.py") == 0
    (line,) = capsys.readouterr().out.splitlines()
    body = json.loads(line)
    runs = {run["variant"]: run for run in body["runs"]}
    assert list(runs) == ["fp32", "bf16", "fp16-dynamic", "fp16-static", "fp16-none"]
    assert (body["target"], body["seed"], body["steps"]) == ("small.py", 3, 60)
    for run in runs.values():
        assert (run["status"], run["steps"]) == ("finished", 60)
        assert run["step_seconds"] > 0
        assert run["time_ratio"] > 0
    assert not any("start alike" in note for note in body["notes"])

    # Saved for backward: the input and the relu's result, prediction and target of the loss.
    # The product with the 1e-8 keeps that factor as a float64 of its own.
    fp32 = 4 * (32 * 8 + 32 * 16 + 2 * 32) + 8
    assert runs["fp32"]["memory_bytes"] == fp32
    assert runs["fp32"]["memory_kind"] == "saved"
    for name in ("bf16", "fp16-dynamic", "fp16-static", "fp16-none"):
        assert runs[name]["memory_bytes"] < fp32

    assert runs["fp32"]["flushed_share"] == 0.0
    assert runs["fp16-none"]["flushed_share"] == 1.0
    assert runs["fp16-none"]["verdict"] == "learned nothing"
    assert runs["fp16-dynamic"]["verdict"] == "as fp32"
    assert runs["fp16-static"]["final_scale"] == 65536.0
    assert {finding["rule"] for finding in runs["fp16-none"]["findings"]} >= {"fp16-without-scaler"}

    for name, run in runs.items():
        records = list(read_log(folder / "logs" / f"{name}.jsonl"))
        steps = [record for record in records if isinstance(record, StepRecord)]
        assert [step.step for step in steps] == list(range(60))
        assert {step.dtype for step in steps} == {run["dtype"]}
        assert records[-1] == RunEnd("finished", 60)
        assert run["last_loss"] == steps[-1].loss
        last = [step.loss for step in steps[-10:] if step.loss is not None]
        assert run["final_loss"] == pytest.approx(sum(last) / 10)


def test_one_that_crashes_one_that_cannot_be_and_one_that_diverges(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variants = "bf16,fp16-dynamic,fp16-none"
    assert compare("--steps", "40", "--variants", variants, "troubled.py") == 0
    out = capsys.readouterr().out
    lines = {line[:22].strip(): line for line in out.splitlines()[2:7]}
    assert lines["fp32"].rstrip().endswith("baseline")
    assert lines["bf16"].rstrip().endswith("failed at step 7")
    assert lines["fp16, dynamic scaler"].rstrip().endswith("not possible")
    assert lines["fp16, no scaler"].rstrip().endswith("diverged")
    assert "bf16: ValueError: [bold]not in bf16" in out
    assert "fp16, dynamic scaler: the loop has no GradScaler" in out
    assert "fp16 without a scaler diverged" in " ".join(out.split())
    assert "\x1b" not in out, "it is no terminal"


def test_without_autocast_there_is_nothing_to_compare(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--variants", "bf16", "plain.py", "50") == 2
    said = capsys.readouterr()
    assert said.out == ""
    (sentence,) = [line for line in said.err.splitlines() if "steps" not in line]
    assert sentence.startswith("ampwatch: plain.py: this loop uses no torch.autocast")


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        ("import nowhere", 1, "it failed before its first step: ModuleNotFoundError"),
        ("raise SystemExit('no data here')", 1, "it failed before its first step: no data here"),
        ("print('nothing to train')", 1, "no optimizer step was taken"),
    ],
)
def test_a_script_that_gets_nowhere_is_told_once(
    folder: Path, capsys: pytest.CaptureFixture[str], body: str, code: int, sentence: str
) -> None:
    Path("other.py").write_text(body)
    assert compare("--variants", "bf16", "other.py") == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1].startswith(f"ampwatch: other.py: {sentence}")
    assert said.err.count("Traceback") == ("import" in body)
    assert said.err.count("no data here") == ("SystemExit" in body)


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[list[Any], dict[str, Any]]:
    """The settings of each run and what is said of the comparison, without running it."""
    made: list[Any] = []

    def note(name: str, members: list[Any], steps: int, seed: int, **how: Any) -> int:
        made.append(([member.job for member in members], dict(how, name=name, steps=steps)))
        return 0

    monkeypatch.setattr(front, "compare", note)
    assert compare(*arguments) == 0
    jobs, how = made[0]
    return jobs, how


def test_a_demo_takes_options_on_either_side(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--variants", "bf16", "linear", "--steps", "30", "--json", "--seed=5"]
    jobs, how = asked(monkeypatch, *given)
    assert how == {"name": "linear", "steps": 30, "together": True, "as_json": True}
    assert [(job.settings.dtype, job.settings.scaler) for job in jobs] == [
        ("float32", "off"),
        ("bfloat16", "off"),
    ]
    for job in jobs:
        target, *args = job._command
        assert target.endswith("linear.py")
        assert args == ["--steps", "30", "--seed", "5"]


def test_what_follows_a_script_is_the_scripts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, how = asked(monkeypatch, "--device", "cpu", "plain.py", "--steps", "7", "--json")
    assert how["steps"] == 200
    assert not how["as_json"]
    assert len(jobs) == 5
    for job in jobs:
        assert job._command == ("plain.py", "--steps", "7", "--json")
        assert (job.settings.steps, job.settings.seed, job.settings.device) == (200, 0, "cpu")


def test_ctrl_c_ends_all_of_them_and_shows_what_there_is(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ampwatch", "compare", "--steps", "1000000", "--variants", "bf16",
         "--log", "logs", "linear"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    logs = [folder / "logs" / f"{name}.jsonl" for name in ("fp32", "bf16")]
    while not all(log.exists() and log.stat().st_size > 20_000 for log in logs):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    fp32 = next(line for line in out.splitlines() if line.startswith("fp32"))
    assert fp32.rstrip().endswith("stopped")
    ends = [list(read_log(log))[-1] for log in logs]
    assert [end.status for end in ends if isinstance(end, RunEnd)] == ["stopped", "stopped"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.py"], "there is no script nowhere.py"),
        (["linaer"], "there is neither a demo nor a script 'linaer'; demos: linear"),
        (["--variants", "fp8", "linear"], "'fp8' is not one of fp32, bf16"),
        (["--steps", "3", "linear"], "3 is not in the range"),
        (["linear", "--stpes", "20"], "there is no option --stpes; did you mean --steps?"),
        (["--log", "plain.py", "linear"], "is a file; name a folder"),
        (["no.module:main"], "there is no module"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_gets_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert compare(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert sentence in line


def test_a_file_that_is_no_log_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("logs").mkdir()
    Path("logs/bf16.jsonl").write_text("my notes\n")
    assert compare("--log", "logs", "linear") == 2
    assert "is no log of ampwatch" in capsys.readouterr().err
    assert Path("logs/bf16.jsonl").read_text() == "my notes\n"


def test_the_machine_is_measured_in_a_process_of_its_own() -> None:
    machine = measure("cpu")
    assert set(machine.speeds) == {"float16", "bfloat16"}
    assert all(speed > 0 for speed in machine.speeds.values())


@pytest.mark.parametrize("program", ["false", "true", "/nowhere/python"])
def test_a_device_that_cannot_be_measured_has_no_speeds(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)  # it fails, it says nothing, it is not there
    assert measure("cpu") == Machine("cpu")


def test_compare_loads_no_torch() -> None:
    program = "import sys, ampwatch.compare.front; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"
