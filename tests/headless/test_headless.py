"""The front end without a screen: what goes to stdout, what to stderr, and how it ends."""

from __future__ import annotations

import io
import json
import math
import os
import signal
from collections.abc import Callable

import pytest

from ampwatch.controls import Controls, Request
from ampwatch.headless import run_headless
from ampwatch.headless.progress import Progress, progress_text
from ampwatch.output import OutputBuffer
from ampwatch.record import Notice, Record, RunEnd, RunInfo, ScalerInfo, StepRecord
from ampwatch.run import Run
from ampwatch.session import Session

INFO = RunInfo("toy", 1.0, tensors=("w", "b"), scaler=ScalerInfo("dynamic", 65536.0, 2.0, 0.5, 100))


def step(number: int, scale: float = 65536.0, skipped: bool = False) -> StepRecord:
    return StepRecord(
        number,
        number * 0.1,
        loss=0.25,
        scale=scale,
        growth_tracker=0,
        skipped=skipped,
        nonfinite_tensors=int(skipped),
        origin="w" if skipped else None,
        dtype="float16",
        scaler="dynamic",
        overhead=0.01,
    )


class PlayedJob:
    """Plays acts, one a poll; an act gives records or does something."""

    def __init__(self, *acts: list[Record] | Callable[[PlayedJob], None]) -> None:
        self.acts = list(acts)
        self.output = OutputBuffer()
        self.state = "starting"
        self.exit_code: int | None = None
        self.error: str | None = None
        self.waiting_for: str | None = None
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")
        self.state = "running"

    def poll(self) -> list[Record]:
        if not self.acts:
            if self.state == "running":
                self.end("finished", 0)
            return []
        act = self.acts.pop(0)
        if callable(act):
            act(self)
            return []
        return act

    def end(self, state: str, exit_code: int) -> None:
        self.state, self.exit_code = state, exit_code

    def send(self, request: Request) -> None: ...

    def stop(self) -> None:
        self.calls.append("stop")

    def kill(self) -> None:
        self.calls.append("kill")
        self.end("stopped", 130)

    def restart(self) -> None: ...


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def played(
    *acts: list[Record] | Callable[[PlayedJob], None],
    json_output: bool = False,
    err: io.StringIO | None = None,
) -> tuple[int, str, str, PlayedJob]:
    job = PlayedJob(*acts)
    out, err = io.StringIO(), err or io.StringIO()
    session = Session(job, Controls(job.send))
    code = run_headless(
        job, session, json_output=json_output, stdout=out, stderr=err, sleep=lambda seconds: None
    )
    return code, out.getvalue(), err.getvalue(), job


def prints(text: str) -> Callable[[PlayedJob], None]:
    return lambda job: job.output.feed(text.encode())


def test_a_run_ends_with_a_summary_on_stderr() -> None:
    code, out, err, job = played(
        [INFO, step(0, skipped=True), step(1, 32768.0)], [RunEnd("finished", 2)]
    )
    assert (code, out, job.calls) == (0, "", ["start"])
    summary = err[err.index("ampwatch: finished") :]
    assert summary.splitlines() == [
        "ampwatch: finished after 2 steps in 0.1 s (10/s)",
        "  float16, scaler dynamic, final scale 2^15 (32768)",
        "  skipped 1 of 2 steps (50 %)",
        "  inf or NaN came from w (1)",
        "  final loss 0.25",
        "  watching took 1 % of the time",
        "  Healthy: the one skipped step is part of how loss scaling works, and nothing is wrong.",
        "findings",
        "  info    scale-settling: 1 step was skipped while the scale found its level: it went "
        "from 2^16 to 2^15. That cost 1 of 2 steps (50 %), which is normal",
        "          step 0",
        "events of note",
        "  step 0 skipped: 1 of 2 gradient tensors held inf or NaN, first in w (nearest the loss); "
        "made in backward; the scale falls from 2^16 to 2^15",
    ]


def test_what_the_script_prints_is_passed_on() -> None:
    _, out, _, _ = played(
        prints("epoch 1\n"), [step(0)], prints("\x1b[31mred\x1b[0m, no line feed")
    )
    assert out == "epoch 1\n\x1b[31mred\x1b[0m, no line feed\n"


def test_with_json_stdout_is_one_strict_object() -> None:
    code, out, err, _ = played(
        prints("epoch 1\n"),
        [INFO, step(0)._replace(loss=math.nan), step(1, skipped=True)._replace(loss=math.inf)],
        [RunEnd("finished", 2)],
        json_output=True,
    )

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert code == 0
    body = json.loads(out, parse_constant=refuse)
    assert set(body) == {
        "name", "status", "error", "steps", "skipped", "skipped_steps", "skipped_by",
        "nonfinite_steps", "origins", "final_scale", "final_loss", "dtype", "scaler", "overhead",
        "rate", "findings",
    }  # fmt: skip
    assert (body["steps"], body["skipped"], body["skipped_steps"]) == (2, 1, [1])
    assert (body["final_loss"], body["final_scale"], body["status"]) == ("inf", 32768.0, "finished")
    assert "epoch 1\n" in err
    assert "findings" not in err


def test_a_script_without_an_optimizer_step_is_told_so() -> None:
    code, _, err, _ = played(prints("hello\n"), [INFO, RunEnd("finished", 0)])
    assert code == 0
    assert "no optimizer step was taken" in err
    _, out, _, _ = played([INFO, RunEnd("finished", 0)], json_output=True)
    assert (json.loads(out)["steps"], json.loads(out)["final_loss"]) == (0, None)


def test_a_failure_is_the_exit_code_and_in_the_summary() -> None:
    code, _, err, _ = played(
        [step(0), RunEnd("failed", 1, "ValueError: no")], lambda job: job.end("failed", 3)
    )
    assert code == 3
    assert "ampwatch: failed after 1 step: ValueError: no" in err


def test_a_failure_without_an_exit_code_is_1() -> None:
    def fail(job: PlayedJob) -> None:
        job.state = "failed"

    assert played([step(0)], fail)[0] == 1


def interrupt(job: PlayedJob) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_asks_politely_and_the_last_records_are_kept() -> None:
    before = signal.getsignal(signal.SIGINT)
    code, _, err, job = played(
        [step(0)],
        interrupt,
        [step(1), RunEnd("stopped", 2)],
        lambda job: job.end("stopped", 130),
    )
    assert (code, job.calls) == (130, ["start", "stop"])
    assert "stopping at the end of this step" in err
    assert "ampwatch: stopped after 2 steps" in err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_kills() -> None:
    code, _, _, job = played([step(0)], interrupt, interrupt, *[[] for _ in range(5)])
    assert (code, job.calls) == (130, ["start", "stop", "kill"])


def test_sigterm_stops_politely_too() -> None:
    code, _, _, job = played(
        [step(0)],
        lambda job: os.kill(os.getpid(), signal.SIGTERM),
        lambda job: job.end("stopped", 130),
    )
    assert (code, job.calls) == (143, ["start", "stop"])


def test_notices_are_said_at_once() -> None:
    _, _, err, _ = played([step(0), Notice("the log cannot be written")], [RunEnd("finished", 1)])
    assert err.index("ampwatch: the log cannot be written\n") < err.index("ampwatch: finished")


def test_a_job_that_cannot_start_leaves_signals_as_they_were() -> None:
    job = PlayedJob()

    def refuse() -> None:
        raise RuntimeError("no")

    job.start = refuse  # type: ignore[method-assign]
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError):
        run_headless(job, Session(job), stdout=io.StringIO(), stderr=io.StringIO())
    assert signal.getsignal(signal.SIGINT) is before


def test_a_reader_that_has_gone_does_not_end_the_training() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    job = PlayedJob(prints("a\n"), [step(0)], prints("b\n"), [step(1)])
    session = Session(job)
    code = run_headless(
        job, session, stdout=Gone(), stderr=io.StringIO(), sleep=lambda seconds: None
    )
    assert (code, session.run.steps) == (0, 2)


def test_a_narrow_encoding_is_no_trouble() -> None:
    raw = io.BytesIO()
    err = io.TextIOWrapper(raw, encoding="ascii")
    job = PlayedJob([step(0)], [RunEnd("failed", 1, "naïve 漢")])
    run_headless(job, Session(job), stdout=io.StringIO(), stderr=err, sleep=lambda seconds: None)
    err.flush()
    assert b"na\\xefve \\u6f22" in raw.getvalue()


# The progress line


def run_of(*records: Record) -> Run:
    run = Run()
    for record in records:
        run.add(record)
    return run


def test_the_progress_line() -> None:
    run = run_of(INFO, *(step(n) for n in range(100)), step(100, skipped=True))
    assert progress_text(run, 501) == (
        "step 101 of 501 | 10/s | 40 s left | scale 2^16 | 1 skipped (0.99 %) | loss 0.25"
    )


def test_the_total_comes_from_the_run_where_it_is_known() -> None:
    run = run_of(RunInfo("toy", 1.0, total_steps=1000), step(0))
    assert progress_text(run).startswith("step 1 of 1,000 | ")
    assert progress_text(run, 50).startswith("step 1 of 50 | ")


def test_the_progress_line_before_the_first_step() -> None:
    assert progress_text(run_of(INFO)) == "no optimizer step yet"


def test_what_is_not_known_is_left_out() -> None:
    assert progress_text(run_of(StepRecord(0, 0.0))) == "step 1"


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


def test_on_a_terminal_the_line_is_rewritten(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    progress = Progress(terminal, lambda: clock[0])
    run = run_of(INFO, step(0))
    for _ in range(3):
        progress.show(run)
        clock[0] += 1.0
    progress.end()
    drawn = terminal.getvalue()
    assert drawn.count("\r\x1b[Kstep 1") == 3
    assert "\n" not in drawn
    assert drawn.endswith("\r\x1b[K")
    assert max(len(part) for part in drawn.split("\r\x1b[K")) < 40


def test_the_line_makes_way_for_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    _, out, err, _ = played([step(0)], prints("half a li"), [step(1)], err=Terminal())
    assert out == "half a li\n"
    assert err.index("step 1") < err.index("\r\x1b[K", err.index("step 1"))


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_elsewhere_it_is_a_plain_line_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    stream = Terminal() if term == "dumb" else io.StringIO()
    progress = Progress(stream, lambda: clock[0])
    run = run_of(INFO, step(0))
    for number in range(1, 101):
        run.add(step(number))
        progress.show(run)
        clock[0] += 0.125
    lines = stream.getvalue().splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        "ampwatch: step 2",
        "ampwatch: step 42",
        "ampwatch: step 82",
    ]
    assert "\x1b" not in stream.getvalue()


def test_a_standstill_is_not_repeated(clock: list[float]) -> None:
    stream = io.StringIO()
    progress = Progress(stream, lambda: clock[0])
    run = run_of(INFO, step(0))
    for _ in range(10):
        progress.show(run)
        clock[0] += 60
    assert len(stream.getvalue().splitlines()) == 1
