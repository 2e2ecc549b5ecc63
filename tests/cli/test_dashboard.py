"""Coming and going in a real terminal: exit codes, the terminal restored, the script not left."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from pathlib import Path

import pytest
from terminals import Terminal, terminal

from ampwatch.log import read_log
from ampwatch.record import RunEnd

TRAINS = """
    import os, signal, sys, time
    from ampwatch import host
    from ampwatch.record import StepRecord

    print("pid", os.getpid())
    open(sys.argv[1], "w").write(str(os.getpid()))
    here = host.current()
    def train(steps):
        for step in range(steps):
            time.sleep(0.02)
            here.put(StepRecord(step, here.time(), loss=0.5))
            here.boundary(lambda request: None)
"""


def write(folder: Path, ending: str) -> Path:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINS) + ending)
    return script


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "pid"


def wait_until(condition: object, shown: Terminal) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        shown.read()
        assert time.monotonic() < deadline


def has_ended(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def test_q_stops_the_training_and_gives_the_terminal_back(tmp_path: Path, pid_file: Path) -> None:
    log = tmp_path / "run.jsonl"
    script = write(tmp_path, "train(1000000)\n")
    with terminal("run", "--log", str(log), str(script), str(pid_file)) as shown:
        shown.wait_for("train.py")
        wait_until(lambda: log.exists() and log.read_text().count('"step"') > 2, shown)
        shown.press("q")
        assert shown.end() == 130
        assert shown.restored()
        assert "train.py stopped after" in shown.left_behind
        assert str(log) in shown.left_behind.replace("\r\n", "")
    assert has_ended(pid_file)
    end = list(read_log(log))[-1]
    assert isinstance(end, RunEnd)
    assert end.status == "stopped"


def test_a_failed_script_leaves_its_traceback_and_exit_code(tmp_path: Path, pid_file: Path) -> None:
    script = write(tmp_path, "train(3)\nraise ValueError('the shapes differ')\n")
    with terminal("run", str(script), str(pid_file)) as shown:
        shown.wait_for("the shapes differ")
        shown.press("q")
        assert shown.end() == 1
        assert shown.restored()
        assert "Traceback (most recent call last):" in shown.left_behind
        last = shown.left_behind.strip().splitlines()[-1]
        assert last == "ampwatch: train.py failed after 3 steps: ValueError: the shapes differ"


def test_what_is_wrong_stays_on_the_terminal(tmp_path: Path, pid_file: Path) -> None:
    script = write(
        tmp_path,
        "for step in range(40):\n"
        "    here.put(StepRecord(step, here.time(), scale=1024.0 * 0.5**step, skipped=step > 3,\n"
        "                        dtype='float16', scaler='dynamic', growth_tracker=0))\n",
    )
    with terminal("run", str(script), str(pid_file)) as shown:
        shown.wait_for("FINISHED")
        shown.press("q")
        assert shown.end() == 0
        told = "ampwatch: error scale-collapse: the scaler skipped 36 steps in a row"
        assert told in shown.left_behind
        assert "ampwatch rules scale-collapse explains it" in shown.left_behind


def test_a_finished_script_is_no_failure(tmp_path: Path, pid_file: Path) -> None:
    script = write(tmp_path, "train(3)\n")
    with terminal("run", str(script), str(pid_file)) as shown:
        shown.wait_for("finished")
        shown.press("q")
        assert shown.end() == 0
        assert "train.py finished after 3 steps" in shown.left_behind


def test_a_segmentation_fault_leaves_the_terminal_whole(tmp_path: Path, pid_file: Path) -> None:
    script = write(tmp_path, "train(3)\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    with terminal("run", str(script), str(pid_file)) as shown:
        shown.wait_for("SIGSEGV")
        shown.press("q")
        assert shown.end() == 128 + signal.SIGSEGV
        assert shown.restored()
        assert "killed by signal 11 (SIGSEGV)" in shown.left_behind


def test_a_script_that_does_not_listen_is_not_waited_for(tmp_path: Path, pid_file: Path) -> None:
    mark = tmp_path / "deaf"
    script = write(
        tmp_path,
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"train(1)\nopen({str(mark)!r}, 'w').close()\ntime.sleep(1000)\n",
    )
    with terminal("run", str(script), str(pid_file)) as shown:
        wait_until(mark.exists, shown)
        shown.wait_for("train.py")
        shown.press("q")
        shown.wait_for("Waiting for the running step to end")
        assert shown.end() == 130
        assert shown.restored()
    assert has_ended(pid_file)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_dashboard_the_script_and_nothing_else(
    tmp_path: Path, pid_file: Path, number: signal.Signals
) -> None:
    script = write(tmp_path, "train(1000000)\n")
    with terminal("run", str(script), str(pid_file)) as shown:
        shown.wait_for("steps/s")
        shown.process.send_signal(number)
        assert shown.end() == 128 + number
        assert shown.restored()
    assert has_ended(pid_file)


def test_a_signal_that_comes_while_the_screen_is_being_made(tmp_path: Path, pid_file: Path) -> None:
    script = write(tmp_path, "time.sleep(1000)\n")
    with terminal("run", str(script), str(pid_file)) as shown:
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), shown)
        shown.process.terminate()
        assert shown.end() == 128 + signal.SIGTERM
    assert has_ended(pid_file)
