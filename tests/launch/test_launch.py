"""The life of a job: records and output come in, it stops, starts again, leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from running_jobs import TAKES_STEPS, Ran, begin, run, write

from ampwatch.controls import PAUSE, SPEED, Request
from ampwatch.launch import ScriptJob
from ampwatch.log import read_log
from ampwatch.record import RunEnd, RunInfo, StepRecord
from ampwatch.runner.settings import Settings


@pytest.fixture
def trains(tmp_path: Path) -> Path:
    return write(tmp_path, TAKES_STEPS + "    train(int(__import__('sys').argv[1]))\n")


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def pid_of(ran: Ran) -> int:
    assert ran.job._child is not None
    return ran.job._child.pid


def test_records_arrive_whole_and_in_order(trains: Path) -> None:
    ran = run(trains, "200")
    assert isinstance(ran.records[0], RunInfo)
    assert ran.records[0].name == "test"
    steps = [record for record in ran.records if isinstance(record, StepRecord)]
    assert [record.step for record in steps] == list(range(200))
    assert steps[3].loss == 0.25
    assert ran.records[-1] == RunEnd("finished", 200)
    assert ran.job.exit_code == 0


def test_the_state_follows_the_script(trains: Path) -> None:
    ran = begin(trains, "1000000")
    assert ran.job.state == "starting"
    ran.pump(lambda: ran.job.state == "running")
    ran.job.stop()
    assert ran.job.state == "stopping"
    ran.to_the_end()
    assert ran.job.state == "stopped"
    assert ran.job.exit_code == 130
    assert ran.end.status == "stopped"


def test_an_ended_job_stays_as_it_is(trains: Path) -> None:
    ran = run(trains, "1")
    ran.job.stop()
    ran.job.kill()
    ran.job.send(Request(PAUSE.name, True))
    assert ran.job.poll() == []
    assert ran.job.state == "finished"
    assert ran.job.waiting_for is None


def test_requests_reach_the_loop(trains: Path) -> None:
    ran = begin(trains, "1000000")
    ran.pump(lambda: ran.job.state == "running")
    ran.job.send(Request(PAUSE.name, True))
    for _ in range(2):
        ran.records.clear()
        quiet_since = time.monotonic()
        ran.pump(lambda: time.monotonic() - quiet_since > 0.5)  # noqa: B023
    assert ran.records == []
    ran.job.send(Request(PAUSE.name, False))
    ran.pump(lambda: ran.records)
    ran.job.close()


def test_many_requests_in_one_long_step_do_not_block(tmp_path: Path) -> None:
    ran = begin(write(tmp_path, "import time; time.sleep(100)"))
    for _ in range(10_000):
        ran.job.send(Request(SPEED.name, 1.0))
    ran.job.kill()
    ran.to_the_end()


def test_steps_can_be_limited_and_that_is_no_failure(trains: Path) -> None:
    ran = run(trains, "1000000", steps=5)
    assert ran.job.state == "finished"
    assert ran.job.exit_code == 0
    assert ran.end == RunEnd("finished", 5)


def test_a_paused_loop_stops_at_once(trains: Path) -> None:
    ran = begin(trains, "1000000")
    ran.job.send(Request(PAUSE.name, True))
    ran.pump(lambda: ran.job.state == "running")
    ran.job.stop()
    ran.to_the_end()
    assert not ran.job._interrupted


def test_a_script_that_saves_on_ctrl_c_saves_on_stop_however_long_it_takes(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TAKES_STEPS
        + """
    try:
        train(1000000)
    except KeyboardInterrupt:
        time.sleep(2.5)
        print("saved")
""",
    )
    ran = begin(script)
    ran.pump(lambda: ran.job.state == "running")
    ran.job.stop()
    ran.pump(lambda: ran.job._acknowledged)
    assert ran.job.waiting_for is not None
    assert "told to stop" in ran.job.waiting_for
    ran.to_the_end()
    assert ran.lines == ["saved"]
    assert ran.job.state == "stopped"
    assert ran.job.exit_code == 130


SLOW_TO_LEAVE = """
    import time

    class Slow:
        def __del__(self, sleep=time.sleep, write=print):
            sleep(0.6)
            write("left")

    slow = Slow()
"""


def test_the_screen_need_not_wait_for_the_interpreters_leaving(tmp_path: Path) -> None:
    script = write(tmp_path, TAKES_STEPS + SLOW_TO_LEAVE + "    train(1000000)\n")
    ran = begin(script)
    ran.pump(lambda: ran.job.state == "running")
    ran.job.stop()
    ran.pump(lambda: ran.job.state == "stopped")
    assert ran.job.exit_code == 130
    assert "left" not in ran.lines
    ran.job.close()
    assert "left" in ran.lines
    assert ran.end == RunEnd("stopped", ran.end.steps)


def test_a_stop_that_comes_after_the_end_changes_nothing(tmp_path: Path) -> None:
    script = write(tmp_path, TAKES_STEPS + SLOW_TO_LEAVE + "    train(2)\n")
    ran = begin(script)
    ran.pump(lambda: ran.records and isinstance(ran.records[-1], RunEnd))
    ran.job.stop()
    ran.to_the_end()
    assert (ran.job.state, ran.job.exit_code) == ("finished", 0)
    assert ran.lines == ["left"]


def test_a_loop_without_steps_is_interrupted(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import time
        print("waiting")
        try:
            time.sleep(100)
        except KeyboardInterrupt:
            print("interrupted")
            raise
        """,
    )
    ran = begin(script)
    ran.until_printed("waiting")
    ran.job.stop()
    assert ran.job.waiting_for == "Waiting for the running step to end."
    ran.to_the_end()
    assert "interrupted" in ran.lines
    assert ran.job.state == "stopped"
    assert ran.job.error is None


def test_a_script_that_saves_when_interrupted_in_a_long_step_has_all_the_time_it_needs(
    tmp_path: Path,
) -> None:
    script = write(
        tmp_path,
        """
        import signal, time
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        print("in a long step")
        try:
            time.sleep(100)
        except KeyboardInterrupt:
            time.sleep(2.5)
            print("saved")
            raise
        """,
    )
    ran = begin(script)
    ran.until_printed("in a long step")
    ran.job.stop()
    ran.pump(lambda: ran.job._acknowledged)
    ran.to_the_end()
    assert "saved" in ran.lines
    assert ran.lines[-1] == "KeyboardInterrupt"
    assert not any("ampwatch" in line for line in ran.lines)
    assert ran.job.state == "stopped"


def test_a_script_that_listens_to_nothing_is_killed(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("deaf")
        while True:
            time.sleep(100)
        """,
    )
    ran = begin(script)
    ran.until_printed("deaf")
    ran.job.stop()
    ran.pump(lambda: ran.job._interrupted)
    assert ran.job.waiting_for == "The script was interrupted and has not answered yet."
    ran.to_the_end()
    assert ran.job.state == "stopped"
    assert ran.end.status == "stopped"


def child_of(ran: Ran) -> int:
    """The process number the script printed."""
    return next(int(line.split()[1]) for line in ran.lines if line.startswith("pid "))


def test_killing_ends_the_scripts_children_too(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import subprocess, time
        print(subprocess.Popen(["sleep", "1000"]).pid)
        time.sleep(1000)
        """,
    )
    ran = begin(script)
    ran.pump(lambda: ran.lines)
    grandchild = int(ran.lines[0])
    ran.job.kill()
    ran.to_the_end()
    ran.pump(lambda: not alive(grandchild) or is_zombie(grandchild))


def is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def test_a_segmentation_fault_is_named_and_the_log_made_whole(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        TAKES_STEPS
        + """
    import os, signal
    train(3)
    os.kill(os.getpid(), signal.SIGSEGV)
""",
    )
    log = tmp_path / "run.jsonl"
    ran = run(script, log=str(log))
    assert ran.job.state == "failed"
    assert ran.job.error == "killed by signal 11 (SIGSEGV)"
    assert ran.job.exit_code == 128 + 11
    assert ran.end == RunEnd("failed", 3, "killed by signal 11 (SIGSEGV)")
    logged = list(read_log(log))
    assert isinstance(logged[0], RunInfo)
    assert logged[-1] == ran.end


def test_the_log_of_a_finished_run_ends_once(trains: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    run(trains, "3", log=str(log))
    kinds = [type(record).__name__ for record in read_log(log)]
    assert kinds == ["RunInfo", "StepRecord", "StepRecord", "StepRecord", "RunEnd"]


def test_a_crash_after_the_end_of_training_is_still_a_failure(tmp_path: Path) -> None:
    script = write(tmp_path, "import atexit, os; atexit.register(os._exit, 9)")
    ran = run(script)
    assert ran.job.exit_code == 9
    assert ran.job.state == "failed"
    assert ran.job.error == "exit code 9"


def test_a_child_that_keeps_the_output_open_does_not_keep_us(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import subprocess
        child = subprocess.Popen(["sh", "-c", "while :; do echo noise; sleep 0.05; done"])
        print("pid", child.pid)
        """,
    )
    ran = run(script)
    assert ran.job.state == "finished"
    os.kill(child_of(ran), signal.SIGKILL)


def test_a_forked_child_that_outlives_the_script_does_not_keep_us(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import os, time
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        print("pid", pid)
        """,
    )
    ran = run(script)
    assert ran.job.state == "finished"
    os.kill(child_of(ran), signal.SIGKILL)


def test_a_flood_of_output_arrives_and_costs_bounded_memory(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        for number in range(300_000):
            print(f"{number:>40}")
        """,
    )
    ran = run(script)
    assert ran.job.output.total == 300_000
    assert ran.lines[-1].strip() == "299999"


def test_a_screen_that_does_not_look_loses_no_printed_line(tmp_path: Path) -> None:
    lines = 100_000  # 4 MB: more than pipe and intake hold
    script = write(tmp_path, f"for n in range({lines}): print(f'{{n:>40}}')\nprint('done')\n")
    ran = begin(script)
    time.sleep(1.0)
    ran.to_the_end()
    assert ran.job.output.total == lines + 1


def test_a_job_starts_again(trains: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    ran = begin(trains, "1000000", log=str(log))
    ran.pump(lambda: ran.job.state == "running")
    first = pid_of(ran)
    ran.job.restart()
    ran.pump(lambda: ran.job.state == "starting")
    ran.records.clear()
    ran.pump(lambda: ran.job.state == "running")
    assert pid_of(ran) != first
    assert not alive(first)
    assert isinstance(ran.records[0], RunInfo)
    ran.job.close()
    kinds = [type(record) for record in read_log(log)]
    assert [kinds.count(RunInfo), kinds.count(RunEnd)] == [2, 2]


def test_an_ended_job_starts_again_with_an_empty_output(tmp_path: Path) -> None:
    ran = run(write(tmp_path, "print('hello')\nraise SystemExit(3)"))
    ran.job.restart()
    assert ran.job.state == "starting"
    assert ran.lines == []
    ran.records.clear()
    ran.to_the_end()
    assert ran.lines == ["hello"]
    assert ran.job.exit_code == 3


def test_asking_twice_to_start_again_does_not_wait_for_a_script_that_is_saving(
    tmp_path: Path,
) -> None:
    script = write(
        tmp_path,
        TAKES_STEPS
        + """
    try:
        train(1000000)
    except KeyboardInterrupt:
        time.sleep(1000)
""",
    )
    ran = begin(script)
    ran.pump(lambda: ran.job.state == "running")
    ran.job.restart()
    ran.pump(lambda: ran.job._acknowledged)
    ran.job.restart()
    ran.pump(lambda: ran.job.state == "running")
    ran.job.kill()
    ran.to_the_end()


def test_stopping_after_asking_to_start_again_only_stops(tmp_path: Path) -> None:
    ran = begin(write(tmp_path, TAKES_STEPS + "    train(1000000)\n"))
    ran.pump(lambda: ran.job.state == "running")
    ran.job.restart()
    ran.job.stop()
    ran.to_the_end()
    assert ran.job.state == "stopped"
    assert any(isinstance(record, RunEnd) for record in ran.records)


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_twenty_restarts_leave_no_process_thread_or_file_behind(tmp_path: Path) -> None:
    ran = begin(write(tmp_path, "print('up')\nimport time\ntime.sleep(1000)"))

    def once() -> None:
        ran.until_printed("up")
        ran.job.restart()
        ran.job.restart()
        ran.pump(lambda: ran.job.state == "starting")

    def held() -> tuple[int, int, list[str]]:
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
        return len(os.listdir("/proc/self/fd")), threading.active_count(), children.split()

    once()
    before = held()
    for _ in range(20):
        once()
    after = held()
    assert after[:2] == before[:2]
    assert len(after[2]) == len(before[2])
    ran.job.kill()
    ran.to_the_end()


def test_a_script_notices_when_the_screen_is_gone(tmp_path: Path) -> None:
    script = write(tmp_path, TAKES_STEPS + "    print('up')\n    train(1000000)\n")
    front = write(
        tmp_path,
        f"""
        import os, time
        from ampwatch.launch import ScriptJob
        from ampwatch.runner.settings import Settings
        job = ScriptJob({str(script)!r}, [], Settings("test"))
        job.start()
        while job.state != "running":
            job.poll()
            time.sleep(0.01)
        print("pid", job._child.pid, flush=True)
        os._exit(0)
        """,
        "front.py",
    )
    ran = run(front)
    trained = int(ran.lines[-1].split()[1])
    ran.pump(lambda: not alive(trained) or is_zombie(trained))


def test_a_process_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    from ampwatch.errors import UsageError

    script = write(tmp_path, "pass")
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    job = ScriptJob(str(script), ["a\0b"], Settings("test"))
    with pytest.raises(UsageError, match="cannot be started"):
        job.start()
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before
