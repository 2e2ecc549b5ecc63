"""Where a loop waits, goes on or stops, as it is asked to."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ampwatch.controls import Request
from ampwatch.feed import Feed
from ampwatch.host import Host, StopTraining, outside
from ampwatch.log import LogWriter, read_log
from ampwatch.record import Notice, RunEnd, RunInfo, StepRecord, from_json


class Screen:
    """The other end of a host's pipes."""

    def __init__(self, **settings: Any) -> None:
        self.records_end, feed_end = os.pipe()
        requests_end, self.ask_end = os.pipe()
        self.host = Host(Feed(feed_end), requests_end, name="test", **settings)
        self.turned: list[Request] = []
        self._fds = [self.records_end, feed_end, requests_end, self.ask_end]

    def ask(self, knob: str, value: Any = None) -> None:
        os.write(self.ask_end, Request(knob, value).to_json().encode() + b"\n")

    def turn(self, request: Request) -> Notice | None:
        self.turned.append(request)
        return Notice("done", request.knob, request.value)

    def boundary(self) -> None:
        self.host.boundary(self.turn)

    def step(self, number: int) -> None:
        self.host.put(StepRecord(number, 0.0))
        self.boundary()

    def received(self) -> list[Any]:
        os.set_blocking(self.records_end, False)
        try:
            data = os.read(self.records_end, 1 << 20)
        except BlockingIOError:
            return []
        return [from_json(line) for line in data.decode().splitlines()]

    def close(self) -> None:
        for fd in self._fds:
            with_suppressed_close(fd)


def with_suppressed_close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.close()


def later(seconds: float, call: Any, *args: Any) -> None:
    timer = threading.Timer(seconds, call, args)
    timer.daemon = True
    timer.start()


def test_records_reach_the_screen_in_order(screen: Screen) -> None:
    for number in range(3):
        screen.step(number)
    assert [record.step for record in screen.received()] == [0, 1, 2]


def test_a_request_is_turned_at_the_boundary_and_answered(screen: Screen) -> None:
    screen.ask("scale", 2.0)
    assert screen.turned == []
    screen.boundary()
    assert screen.turned == [Request("scale", 2.0)]
    assert screen.received() == [Notice("done", "scale", 2.0)]


def test_requests_come_in_pieces(screen: Screen) -> None:
    line = Request("scale", 2.0).to_json().encode() + b"\n"
    os.write(screen.ask_end, line[:7])
    screen.boundary()
    assert screen.turned == []
    os.write(screen.ask_end, line[7:] + line)
    screen.boundary()
    assert len(screen.turned) == 2


def test_nonsense_on_the_requests_pipe_is_passed_over(screen: Screen) -> None:
    os.write(screen.ask_end, b'\xff\xfe\n{}\n[1]\nnull\n{"knob": "no", "value": 1}\n')
    screen.ask("scale", 2.0)
    screen.boundary()
    assert screen.turned == [Request("scale", 2.0)]


def test_pause_holds_the_loop_until_it_goes_on(screen: Screen) -> None:
    screen.ask("pause", True)
    later(0.15, screen.ask, "pause", False)
    begun = time.monotonic()
    screen.boundary()
    held = time.monotonic() - begun
    assert held >= 0.1
    assert screen.host.waited == pytest.approx(held, abs=0.1)
    screen.boundary()
    assert screen.host.waited <= held, "it is held no more"


def test_knobs_turn_while_paused(screen: Screen) -> None:
    screen.ask("pause", True)
    later(0.05, screen.ask, "scale", 2.0)
    later(0.15, screen.ask, "pause", False)
    screen.boundary()
    assert screen.turned == [Request("scale", 2.0)]


def test_a_single_step_pauses_after_it(screen: Screen) -> None:
    screen.ask("pause", True)
    screen.ask("step")
    screen.boundary()  # one step may be taken
    later(0.1, screen.ask, "step")
    begun = time.monotonic()
    screen.boundary()  # and then it waits for the next
    assert time.monotonic() - begun >= 0.05
    later(0.1, screen.ask, "stop")
    with pytest.raises(StopTraining):
        screen.boundary()


def test_a_number_of_steps_pauses_after_them_and_tells_how_long_they_took(screen: Screen) -> None:
    screen.ask("step", 3)
    begun = time.monotonic()
    for _ in range(3):
        screen.boundary()
        assert not screen.host.resumed
        time.sleep(0.02)
    assert screen.received() == []
    later(0.1, screen.ask, "pause", False)
    settled: list[float] = []
    screen.host.boundary(screen.turn, lambda: settled.append(time.monotonic()))
    taken = time.monotonic() - begun - 0.1
    (told,) = screen.received()
    assert (told.text, told.knob) == ("", "step")
    assert 0.06 <= told.value <= taken + 0.05, "the time of the pause is not among it"
    assert len(settled) == 1, "what is on a device is waited for once"
    assert screen.host.resumed, "until the next boundary"
    screen.boundary()
    assert not screen.host.resumed


def test_a_single_step_is_not_answered(screen: Screen) -> None:
    screen.ask("step")
    screen.boundary()
    later(0.05, screen.ask, "pause", False)
    screen.boundary()
    assert screen.received() == []


def test_stop_ends_the_loop_and_is_acknowledged(screen: Screen) -> None:
    screen.ask("stop")
    with pytest.raises(StopTraining):
        screen.boundary()
    assert screen.host.stopped_by == "user"
    assert screen.received() == [Notice("", "stop", True)]


def test_stop_ends_a_paused_loop(screen: Screen) -> None:
    screen.ask("pause", True)
    later(0.1, screen.ask, "stop")
    with pytest.raises(StopTraining):
        screen.boundary()


def test_a_screen_that_is_gone_stops_the_loop(screen: Screen) -> None:
    screen.ask("pause", True)
    later(0.1, os.close, screen.ask_end)
    with pytest.raises(StopTraining):
        screen.boundary()
    assert screen.host.stopped_by == "user"


def test_stop_training_is_a_keyboard_interrupt() -> None:
    assert issubclass(StopTraining, KeyboardInterrupt)


def test_a_number_of_steps() -> None:
    host = Host(steps=3, name="test")
    host.reached(0)
    host.boundary(lambda request: None)
    host.reached(2)
    with pytest.raises(StopTraining):
        host.boundary(lambda request: None)
    assert host.stopped_by == "steps"


def test_a_late_record_does_not_turn_back_the_count() -> None:
    host = Host(steps=10, name="test")
    host.reached(7)
    host.put(StepRecord(5, 0.0))
    assert host.last_step == 7


def test_a_pace_is_kept() -> None:
    host = Host(rate=50.0, name="test")
    begun = time.monotonic()
    for _ in range(6):
        host.boundary(lambda request: None)
    assert time.monotonic() - begun >= 5 / 50 - 0.005


def test_a_long_step_is_not_made_up_for() -> None:
    host = Host(rate=20.0, name="test")
    host.boundary(lambda request: None)
    time.sleep(0.2)
    begun = time.monotonic()
    for _ in range(3):
        host.boundary(lambda request: None)
    assert time.monotonic() - begun >= 0.05


def test_speed_can_be_set_and_unset(screen: Screen) -> None:
    screen.ask("speed", 20.0)
    screen.boundary()
    begun = time.monotonic()
    screen.boundary()
    assert time.monotonic() - begun >= 0.03
    for value in (None, -1, "fast"):
        screen.ask("speed", value)
        screen.boundary()
        assert screen.host._rate is None


def test_the_end_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    host = Host(log=LogWriter(path), name="test")
    host.put(host.info)
    host.put(StepRecord(0, 0.0))
    host.close("finished")
    host.close("failed", "no")
    host.put(StepRecord(1, 0.0))
    records = list(read_log(path))
    assert [type(record) for record in records] == [RunInfo, StepRecord, RunEnd]
    assert records[-1] == RunEnd("finished", 1, None)


def test_a_forked_child_hands_on_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    host = Host(log=LogWriter(path), name="test", steps=1)
    host.put(host.info)
    pid = os.fork()
    if pid == 0:
        try:
            host.put(StepRecord(0, 0.0))
            host.reached(5)
            host.boundary(lambda request: None)  # and it is not stopped either
            host.say("from the child")
            host.close("failed")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    host.close("finished")
    assert [type(record) for record in read_log(path)] == [RunInfo, RunEnd]


def test_outside_a_dashboard_there_is_nothing_but_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = outside(str(tmp_path / "run.jsonl"), "mine")
    assert not host.watched
    host.boundary(lambda request: None)
    host.say("a sentence")
    host.close("finished")
    assert capsys.readouterr().err == "ampwatch: a sentence\n"
    assert next(iter(read_log(tmp_path / "run.jsonl"))).name == "mine"  # type: ignore[union-attr]


def test_each_rank_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    host = outside(str(tmp_path / "run"), None)
    host.close("finished")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["rank-00003.jsonl"]


def test_a_pause_writes_out_what_the_log_holds_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    screen = Screen(log=LogWriter(path))
    loop = threading.Thread(target=screen.step, args=(0,))
    screen.ask("pause", True)
    loop.start()
    deadline = time.monotonic() + 10
    while not path.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    recorded = list(read_log(path))
    screen.ask("pause", False)
    loop.join(10)
    screen.close()
    assert [record.step for record in recorded if isinstance(record, StepRecord)] == [0]
