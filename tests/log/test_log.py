"""The log: nothing is lost to a full disk or a killed process, and whatever it holds is read."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ampwatch.errors import LogError
from ampwatch.log import LogFollower, LogWriter, rank_path, read_log
from ampwatch.log import reader as log_reader
from ampwatch.log import writer as log_writer
from ampwatch.log.ranks import merge_ranks
from ampwatch.record import Notice, Record, RunEnd, RunInfo, StepRecord, TensorStats, to_json

INFO = RunInfo("toy", 1.0)
END = RunEnd("finished", 3)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def step(number: int, skipped: bool = False, **more: object) -> StepRecord:
    return StepRecord(number, number * 0.01, loss=0.5, skipped=skipped, **more)  # type: ignore[arg-type]


def steps_of(records: Iterator[Record] | list[Record]) -> list[int]:
    return [record.step for record in records if isinstance(record, StepRecord)]


def write(path: Path, *records: Record) -> Path:
    path.write_text("".join(to_json(record) + "\n" for record in records), encoding="utf-8")
    return path


# Writing


def test_what_was_put_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folders" / "run.jsonl"
    stats = TensorStats(1, ("Größe",), (1.0,), (1.0,), (0,), (0,))
    records = [INFO, step(0), stats, step(1, skipped=True), END]
    writer = LogWriter(path)
    for record in records:
        writer.put(record)
    writer.close()
    assert list(read_log(path)) == records
    assert path.read_bytes().endswith(b"\n")


def test_every_line_is_strict_json_in_utf_8(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "run.jsonl")
    writer.put(step(0, origin="漢\ud800", grad_norm=float("inf"), metrics={"m": float("nan")}))
    writer.close()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    for line in (tmp_path / "run.jsonl").read_text("utf-8").splitlines():
        json.loads(line, parse_constant=refuse)


def test_a_line_made_elsewhere_is_written_as_it_is(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "run.jsonl")
    writer.put(step(0), '{"type":"step","step":7,"time":1.0}')
    writer.close()
    assert steps_of(read_log(tmp_path / "run.jsonl")) == [7]


def test_ordinary_steps_wait_a_tenth_of_a_second(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "run.jsonl"
    writer = LogWriter(path, clock=clock)
    writer.put(step(0))
    clock.now += 0.09
    writer.put(step(1))
    assert path.stat().st_size == 0
    clock.now += 0.02
    writer.put(step(2))
    assert steps_of(read_log(path)) == [0, 1, 2]


@pytest.mark.parametrize(
    "record",
    [step(1, skipped=True), TensorStats(1, (), (), (), (), ()), INFO, END],
    ids=["skip", "tensors", "run", "end"],
)
def test_what_matters_does_not_wait(tmp_path: Path, record: Record) -> None:
    path = tmp_path / "run.jsonl"
    writer = LogWriter(path, clock=Clock())
    writer.put(step(0))
    writer.put(record)
    assert list(read_log(path)) == [step(0), record]


def test_notices_are_not_logged(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "run.jsonl")
    writer.put(step(0))
    writer.put(Notice("hello"))
    writer.close()
    assert list(read_log(tmp_path / "run.jsonl")) == [step(0)]


def test_closing_twice_and_putting_afterwards_do_no_harm(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "run.jsonl")
    writer.put(step(0))
    writer.close()
    writer.put(step(1))
    writer.flush()
    writer.close()
    assert steps_of(read_log(tmp_path / "run.jsonl")) == [0]


def test_an_existing_log_is_continued_on_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(to_json(step(0)) + '\n{"type":"st', encoding="utf-8")
    writer = LogWriter(path)
    writer.put(INFO)
    writer.put(step(1))
    writer.close()
    told: list[str] = []
    assert list(read_log(path, told.append)) == [step(0), INFO, step(1)]
    assert len(told) == 1
    assert "the first is line 2" in told[0]


def test_a_place_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for path in (tmp_path, blocked / "run.jsonl"):
        with pytest.raises(LogError, match=r"cannot write the log .*: (is a|not a|file exists)"):
            LogWriter(path)


class Disk:
    """os.write with a limit to how many bytes the disk takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 10**9
        self._write = os.write
        monkeypatch.setattr(log_writer.os, "write", self.write)

    def write(self, fd: int, data: bytes | bytearray) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(fd, bytes(data[: self.room]))
        self.room -= written
        return written


def test_a_full_disk_loses_nothing_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, clock, told = Disk(monkeypatch), Clock(), list[str]()
    path = tmp_path / "run.jsonl"
    writer = LogWriter(path, told.append, clock)
    choose = random.Random(1)
    for number in range(300):
        if number == 50:
            disk.room = 77  # full in the middle of a line
        if number == 150:
            disk.room = 333  # room for a few lines, then full again
        if number == 200:
            disk.room = 10**9
        writer.put(step(number, skipped=choose.random() < 0.2))
        clock.now += 0.3
        if number == 140:
            assert writer.trouble == "no space left on device"
    writer.close()
    assert steps_of(read_log(path)) == list(range(300))
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) == 300
    assert [json.loads(line)["step"] for line in lines] == list(range(300))
    assert len(told) == 2
    assert "cannot be written just now (no space left on device)" in told[0]
    assert told[1].endswith("is written again")


def test_a_disk_that_stays_full_costs_ordinary_steps_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "WAITING_BYTES", 2000)
    disk, clock, told = Disk(monkeypatch), Clock(), list[str]()
    writer = LogWriter(tmp_path / "run.jsonl", told.append, clock)
    disk.room = 0
    for number in range(1000):
        writer.put(step(number, skipped=number % 100 == 99))
        clock.now += 0.1
    assert len(writer._buffer) < 4000
    disk.room = 10**9
    clock.now += 2
    writer.put(step(1000))
    writer.close()
    records = list(read_log(tmp_path / "run.jsonl"))
    skips = [r.step for r in records if isinstance(r, StepRecord) and r.skipped]
    assert skips == list(range(99, 1000, 100))
    assert f"{writer.lost:,} ordinary steps are missing" in told[1]
    assert writer.lost == 1001 - len(records)


def test_a_log_that_stays_incomplete_is_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, told = Disk(monkeypatch), list[str]()
    writer = LogWriter(tmp_path / "run.jsonl", told.append)
    disk.room = 0
    writer.put(step(0, skipped=True))
    writer.close()
    assert len(told) == 2
    assert "is incomplete" in told[1]


def test_a_log_that_was_removed_goes_on_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "run.jsonl"
    writer = LogWriter(path)
    writer.put(step(0, skipped=True))
    path.unlink()
    path.parent.rmdir()
    writer.put(step(1, skipped=True))
    writer.close()
    assert steps_of(read_log(path)) == [1]


def test_an_interrupt_between_writing_and_counting_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    writer = LogWriter(path, clock=Clock())
    write_for_real = os.write

    def interrupted(fd: int, data: bytes) -> int:
        write_for_real(fd, bytes(data[:20]))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(log_writer.os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.put(step(0, skipped=True))
    writer.put(step(1, skipped=True))
    writer.close()
    assert path.read_text("utf-8") == "".join(
        to_json(step(number, skipped=True)) + "\n" for number in (0, 1)
    )


def test_a_forked_copy_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    writer = LogWriter(path, clock=Clock())
    writer.put(step(0))
    pid = os.fork()
    if pid == 0:
        writer.put(step(9, skipped=True))
        writer.flush()
        writer.close()
        os._exit(0)
    os.waitpid(pid, 0)
    writer.put(step(1))
    writer.close()
    assert steps_of(read_log(path)) == [0, 1]


KILLED = """
import sys, time
from ampwatch.log import LogWriter
from ampwatch.record import RunInfo, StepRecord
writer = LogWriter(sys.argv[1])
writer.put(RunInfo("killed", time.time()))
started = time.monotonic()
number = 0
while True:
    writer.put(StepRecord(number, time.monotonic() - started, loss=0.5))
    print(number, time.monotonic() - started, flush=True)
    number += 1
    time.sleep(0.002)
"""


def test_kill_9_loses_at_most_the_last_second(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    recorded: dict[int, float] = {}
    for line in process.stdout:
        number, moment = line.split()
        recorded[int(number)] = float(moment)
        if float(moment) > 2.5:
            break
    os.kill(process.pid, signal.SIGKILL)
    for line in process.stdout:
        if len(line.split()) == 2:
            recorded[int(line.split()[0])] = float(line.split()[1])
    process.stdout.close()
    process.wait()
    kept = steps_of(read_log(path))
    assert kept == list(range(len(kept)))
    # A tenth of a second, and the pause of a step around which it may fall.
    assert max(recorded.values()) - recorded[kept[-1]] <= log_writer.FLUSH_SECONDS + 0.25


# Reading


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", INFO, step(0), step(1))
    whole = path.read_bytes()
    told: list[str] = []
    for cut in range(1, len(to_json(step(1))) + 1):
        path.write_bytes(whole[:-cut])
        assert list(read_log(path, told.append)) == [INFO, step(0)]
    assert told == []


def test_a_log_without_a_run_line_is_read(tmp_path: Path) -> None:
    assert steps_of(read_log(write(tmp_path / "run.jsonl", step(4), step(5)))) == [4, 5]


def test_bad_lines_in_the_middle_are_told_and_not_fatal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    good = [to_json(step(number)).encode() for number in range(3)]
    bad = [b"\xff\xfe", b"{}", b"[" * 100_000, b"NaN", b"\x00" * 4096]
    path.write_bytes(b"\n".join([good[0], *bad, b"", good[1], b"\r", good[2] + b"\r", b""]))
    told: list[str] = []
    assert steps_of(read_log(path, told.append)) == [0, 1, 2]
    assert len(told) == 1
    assert told[0].startswith(
        f"5 lines of {path} could not be read; the first is line 2: not UTF-8"
    )


def test_a_mark_of_byte_order_at_the_start_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + to_json(step(0)).encode() + b"\n")
    assert steps_of(read_log(path)) == [0]


def test_reading_is_piecewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "READ_BYTES", 7)
    records = [INFO, *(step(number, origin="Größe") for number in range(50)), END]
    assert list(read_log(write(tmp_path / "run.jsonl", *records))) == records


def test_a_line_without_an_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "READ_BYTES", 100)
    monkeypatch.setattr(log_reader, "LINE_BYTES", 1000)
    path = tmp_path / "run.jsonl"
    path.write_bytes(
        to_json(step(0)).encode() + b"\n" + b"x" * 5000 + b"\n" + to_json(step(1)).encode() + b"\n"
    )
    told: list[str] = []
    assert steps_of(read_log(path, told.append)) == [0, 1]
    assert "a line without an end" in told[0]


def test_what_is_no_log_is_told_in_a_sentence(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    script = tmp_path / "train.py"
    script.write_text("import torch\nprint('hi')\n")
    half = tmp_path / "half.jsonl"
    half.write_text('{"type":"run"')
    (tmp_path / "folder").mkdir()
    for path, words in (
        (empty, "is empty"),
        (script, "is not a log of ampwatch"),
        (half, "holds no whole line"),
        (tmp_path / "folder", "holds no logs"),
        (tmp_path / "nowhere", "there is no log at"),
    ):
        with pytest.raises(LogError, match=words):
            list(read_log(path))


# Following


def append(path: Path, data: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(data)


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    follower = LogFollower(path)
    assert follower.poll() == []
    write(path, INFO, step(0))
    assert follower.poll() == [INFO, step(0)]
    assert follower.poll() == []
    follower.close()


def test_a_line_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    follower = LogFollower(path)
    line = to_json(step(0, origin="漢")) + "\n"
    data = line.encode()
    for cut in range(len(data) - 1):
        with open(path, "ab") as file:
            file.write(data[cut : cut + 1])
        assert follower.poll() == []
    append(path, "\n")
    assert follower.poll() == [step(0, origin="漢")]


def test_a_log_that_is_cut_short_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", INFO, step(0), step(1))
    follower = LogFollower(path)
    assert len(follower.poll()) == 3
    path.write_text(to_json(step(7)) + "\n", encoding="utf-8")
    assert steps_of(follower.poll()) == [7]


def test_a_log_that_is_replaced_by_another_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", INFO, step(0))
    follower = LogFollower(path)
    follower.poll()
    append(path, to_json(step(1)) + "\n")  # the last words of the old one are still heard
    write(tmp_path / "new", RunInfo("other", 2.0), *(step(n) for n in range(5)))
    assert steps_of(follower.poll()) == [1]
    os.replace(tmp_path / "new", path)
    assert steps_of(follower.poll()) == [0, 1, 2, 3, 4]


def test_a_copy_that_goes_on_is_not_read_twice(tmp_path: Path) -> None:
    """Tools that mirror a file write a new one and rename it."""
    records = [INFO, step(0), step(1), step(2)]
    path = write(tmp_path / "run.jsonl", *records[:3])
    follower = LogFollower(path)
    assert len(follower.poll()) == 3
    write(tmp_path / "new", *records)
    os.replace(tmp_path / "new", path)
    assert steps_of(follower.poll()) == [2]


def test_a_log_that_vanishes_for_a_while_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", step(0))
    follower = LogFollower(path)
    follower.poll()
    path.unlink()
    assert follower.poll() == []
    write(path, step(9))
    assert steps_of(follower.poll()) == [9]


def test_bad_lines_are_told_once_while_following(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    append(path, "nonsense\n")
    follower = LogFollower(path)
    (notice,) = follower.poll()
    assert isinstance(notice, Notice)
    assert notice.refused
    append(path, "more nonsense\n" + to_json(step(0)) + "\n")
    assert follower.poll() == [step(0)]


def test_an_empty_folder_is_waited_for(tmp_path: Path) -> None:
    assert LogFollower(tmp_path).poll() == []


# Ranks


def test_where_a_rank_writes() -> None:
    assert rank_path("out.jsonl", 0, 1) == Path("out.jsonl")
    assert rank_path("out", 3, 16) == Path("out/rank-00003.jsonl")


def ranks(folder: Path, *logs: list[Record]) -> Path:
    for rank, records in enumerate(logs):
        path = rank_path(folder, rank, 2)
        path.parent.mkdir(exist_ok=True)
        write(path, *records)
    return folder


def test_ranks_are_merged_by_step(tmp_path: Path) -> None:
    first: list[Record] = [RunInfo("ddp", 1.0, rank=0, world_size=2)]
    second: list[Record] = [RunInfo("ddp", 1.0, rank=1, world_size=2)]
    first += [StepRecord(n, n * 1.0, loss=1.0, skipped=False) for n in range(4)]
    second += [StepRecord(n, n * 1.5, loss=3.0, skipped=n == 2) for n in range(4)]
    records = list(read_log(ranks(tmp_path / "run", [*first, END], [*second, END])))
    assert records[0] == RunInfo("ddp", 1.0, rank=0, world_size=2)
    merged = [record for record in records if isinstance(record, StepRecord)]
    assert [record.step for record in merged] == [0, 1, 2, 3]
    assert [record.loss for record in merged] == [2.0] * 4  # the mean over the ranks
    assert [record.skipped for record in merged] == [False, False, True, False]
    assert records[-1] == END
    assert sum(isinstance(record, (RunInfo, RunEnd)) for record in records) == 2


def test_the_rank_that_saw_the_inf_is_the_one_that_is_shown() -> None:
    healthy = StepRecord(5, 1.0, grad_norm=1.0, nonfinite_tensors=0)
    ill = StepRecord(5, 1.0, grad_norm=float("inf"), nonfinite_tensors=2, origin="w", facts=("f",))
    merged = merge_ranks([healthy, ill])
    assert (merged.nonfinite_tensors, merged.origin, merged.facts) == (2, "w", ("f",))


def test_several_optimizers_on_several_ranks_stay_apart(tmp_path: Path) -> None:
    records: list[Record] = [
        StepRecord(n, n * 1.0, optimizer=name) for n in range(3) for name in ("A", "B")
    ]
    merged = list(read_log(ranks(tmp_path / "run", records, list(records))))
    assert [(r.step, r.optimizer) for r in merged if isinstance(r, StepRecord)] == [
        (n, name) for n in range(3) for name in ("A", "B")
    ]


def test_a_rank_that_died_early_holds_nothing_up(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "run", [step(n) for n in range(10)], [step(n) for n in range(4)])
    assert steps_of(read_log(folder)) == list(range(10))


def test_a_failed_rank_is_a_failed_run(tmp_path: Path) -> None:
    folder = ranks(
        tmp_path / "run", [step(0), RunEnd("stopped", 1)], [step(0), RunEnd("failed", 1, "boom")]
    )
    assert list(read_log(folder))[-1] == RunEnd("failed", 1, "rank 1: boom")


def test_ranks_of_different_pace_are_merged_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "READ_BYTES", 200)
    wordy: list[Record] = [step(n, origin="x" * 300) for n in range(40)]
    terse: list[Record] = [step(n) for n in range(40)]
    records = list(read_log(ranks(tmp_path / "run", wordy, terse)))
    assert steps_of(records) == list(range(40))


def test_growing_ranks_are_followed(tmp_path: Path) -> None:
    clock = Clock()
    folder = tmp_path / "run"
    follower = LogFollower(folder, clock)
    assert follower.poll() == []
    ranks(folder, [step(0), step(1)], [step(0)])
    assert steps_of(follower.poll()) == []  # rank 1 may have more to say of step 0
    append(rank_path(folder, 1, 2), to_json(step(1)) + "\n" + to_json(step(2)) + "\n")
    assert steps_of(follower.poll()) == [0]
    append(rank_path(folder, 0, 2), to_json(step(2)) + "\n" + to_json(END) + "\n")
    append(rank_path(folder, 1, 2), to_json(END) + "\n")
    records = follower.poll()
    assert steps_of(records) == [1, 2]
    assert records[-1] == END


def test_a_silent_rank_is_not_waited_for_long(tmp_path: Path) -> None:
    clock = Clock()
    folder = ranks(tmp_path / "run", [step(0), step(1), step(2)], [step(0)])
    follower = LogFollower(folder, clock)
    assert steps_of(follower.poll()) == []
    clock.now += log_reader.LATE_SECONDS + 1
    append(rank_path(folder, 0, 2), to_json(step(3)) + "\n")
    assert steps_of(follower.poll()) == [0, 1, 2]


def test_following_catches_up_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "READ_BYTES", 500)
    path = write(tmp_path / "run.jsonl", *(step(n) for n in range(200)))
    follower = LogFollower(path)
    pieces: list[list[Record]] = []
    deadline = time.monotonic() + 20
    while sum(map(len, pieces)) < 200 and time.monotonic() < deadline:
        pieces.append(follower.poll())
    assert len(pieces) > 10
    assert steps_of([record for piece in pieces for record in piece]) == list(range(200))
