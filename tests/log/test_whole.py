"""A log as it is now, as a source of records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recorded_logs import INFO, healthy, step, write_log

from ampwatch.errors import LogError
from ampwatch.log import WholeLog, check_log, rank_path
from ampwatch.log.whole import POLL_RECORDS, FollowedLog
from ampwatch.record import Notice, RunEnd, StepRecord
from ampwatch.session import Session


def test_a_whole_log_comes_piece_by_piece_and_then_nothing_more(tmp_path: Path) -> None:
    records = healthy(2 * POLL_RECORDS)
    log = WholeLog(write_log(tmp_path / "run.jsonl", records))
    pieces = []
    while piece := log.poll():
        pieces.append(piece)
    assert max(map(len, pieces)) == POLL_RECORDS
    assert [record for piece in pieces for record in piece] == records


def test_ranks_without_an_end_are_read_to_their_last_step(tmp_path: Path) -> None:
    """Nobody waits for a rank that was killed."""
    for rank, steps in ((0, 5), (1, 3)):
        records = [INFO, *(step(number, 8.0) for number in range(steps))]
        write_log(rank_path(tmp_path, rank, 2), records)
    session = Session(WholeLog(tmp_path))
    while session.pump():
        pass
    assert session.run.steps == 5


def test_a_bad_line_is_a_notice_and_the_rest_is_read(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", healthy(4))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"nonsense\n", *lines[3:]]))
    records = WholeLog(path).poll()
    assert sum(isinstance(record, StepRecord) for record in records) == 4
    notice = records[-1]
    assert isinstance(notice, Notice)
    assert notice.refused
    assert "the first is line 4" in notice.text


def test_a_rank_that_is_no_log_is_a_notice(tmp_path: Path) -> None:
    write_log(rank_path(tmp_path, 0, 2), healthy(3))
    rank_path(tmp_path, 1, 2).write_text("nonsense\n")
    source = WholeLog(tmp_path)
    records = [*source.poll(), *source.poll()]
    assert sum(isinstance(record, StepRecord) for record in records) == 3
    (notice,) = [record for record in records if isinstance(record, Notice)]
    assert "rank-00001.jsonl is not a log of ampwatch" in notice.text


def test_a_file_that_is_no_log_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nonsense\n")
    with pytest.raises(LogError, match="is not a log of ampwatch"):
        WholeLog(path).poll()


def test_what_can_be_read_passes_the_check(tmp_path: Path) -> None:
    check_log(write_log(tmp_path / "run.jsonl", healthy(3)))
    write_log(rank_path(tmp_path / "ranks", 0, 2), healthy(3))
    check_log(tmp_path / "ranks")


def test_what_cannot_be_read_does_not(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nonsense\n")
    (tmp_path / "empty.jsonl").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, words in [
        ("missing", "there is no log at"),
        ("notes.txt", "is not a log of ampwatch"),
        ("empty.jsonl", "is empty: nothing has been recorded yet"),
        ("pipe", "is neither a file nor a folder"),
        (".", "holds no logs"),
        ("notes.txt/run.jsonl", "no"),
    ]:
        with pytest.raises(LogError, match=words):
            check_log(tmp_path / name)


def test_a_log_that_has_just_been_opened_can_be_followed(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    check_log(tmp_path / "empty.jsonl", growing=True)
    check_log(tmp_path, growing=True)
    with pytest.raises(LogError, match="there is no log at"):
        check_log(tmp_path / "missing", growing=True)


def test_a_log_is_followed_while_it_grows(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", [INFO, step(0, 8.0)])
    log = FollowedLog(path)
    assert len(log.poll()) == 2
    assert log.poll() == []
    write_log(path, [step(1, 8.0), RunEnd("finished", 2)])
    assert [type(record) for record in log.poll()] == [StepRecord, RunEnd]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_becomes_unreadable_is_told_once(tmp_path: Path) -> None:
    path = write_log(rank_path(tmp_path, 0, 2), healthy(3))
    path.chmod(0)
    log = FollowedLog(tmp_path)
    (notice,) = log.poll()
    assert isinstance(notice, Notice)
    assert "permission denied" in notice.text
    assert log.poll() == []
