"""The way to the screen: never blocks, never loses what matters, keeps the order."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from ampwatch import feed as feed_module
from ampwatch.feed import Feed


class Pipe:
    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        self.feed = Feed(write_end)
        self.write_end = write_end
        os.set_blocking(self.read_end, False)

    def read(self, most: int = 1 << 20) -> bytes:
        try:
            return os.read(self.read_end, most)
        except BlockingIOError:
            return b""

    def everything(self) -> list[str]:
        """Read and write in turn until nothing waits."""
        data = b""
        while True:
            done = self.feed.flush()
            data += (part := self.read())
            if done and not part:
                return data.decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    for fd in (made.read_end, made.write_end):
        os.close(fd)


def line(number: int) -> str:
    return f"{number} " + "x" * 300


def numbers(lines: list[str]) -> list[int]:
    return [int(each.split()[0]) for each in lines]


def test_a_line_goes_out_at_once(pipe: Pipe) -> None:
    pipe.feed.put("hello", keep=False)
    assert pipe.read() == b"hello\n"


def test_a_full_pipe_does_not_block_and_order_is_kept(pipe: Pipe) -> None:
    for number in range(1000):
        pipe.feed.put(line(number), keep=False)
    assert not pipe.feed.flush(), "the pipe was to be full"
    assert numbers(pipe.everything()) == list(range(1000))
    assert pipe.feed.thinned == 0


def test_lines_arrive_whole_although_the_pipe_takes_parts(pipe: Pipe) -> None:
    long = "é" * 200_000
    pipe.feed.put(long, keep=True)
    pipe.feed.put("after", keep=True)
    data = b""
    while len(data) < 2 * len(long) + 7:
        data += pipe.read(777)
        pipe.feed.flush()
    assert data.decode().splitlines() == [long, "after"]


def test_only_ordinary_lines_are_thinned(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "BACKLOG_LINES", 500)
    total = 5000
    for number in range(total):
        pipe.feed.put(line(number), keep=number % 50 == 0)
    came = numbers(pipe.everything())
    assert came == sorted(came)
    assert set(range(0, total, 50)) <= set(came)
    assert len(came) + pipe.feed.thinned == total
    assert pipe.feed.thinned > 0
    assert max(b - a for a, b in pairwise(came)) <= 50, "all times are covered"


def test_memory_of_a_stuck_reader_is_bounded(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "BACKLOG_LINES", 100)
    for number in range(3000):
        pipe.feed.put(line(number), keep=False)
    assert len(pipe.feed._waiting) <= 100


def test_a_run_in_which_every_step_is_skipped_costs_no_more_a_line(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "BACKLOG_LINES", 100)
    thinnings = 0

    def thin(feed: Feed) -> None:
        nonlocal thinnings
        thinnings += 1

    monkeypatch.setattr(Feed, "_thin", thin)
    for number in range(1000):
        pipe.feed.put(line(number), keep=True)
    assert thinnings == 0
    assert numbers(pipe.everything()) == list(range(1000))


def test_nobody_reads_any_more(pipe: Pipe) -> None:
    other_read, other_write = os.pipe()
    feed = Feed(other_write)
    os.close(other_read)
    feed.put("lost", keep=True)
    assert feed.closed
    feed.put("lost too", keep=True)
    feed.close()
    os.close(other_write)


def test_close_waits_only_so_long(pipe: Pipe) -> None:
    for number in range(1000):
        pipe.feed.put(line(number), keep=True)
    begun = time.monotonic()
    pipe.feed.close(timeout=0.1)
    assert time.monotonic() - begun < 5.0
    assert pipe.feed.closed


def test_half_a_character_does_not_stop_the_loop(pipe: Pipe) -> None:
    pipe.feed.put("name \udcff", keep=True)
    assert pipe.read().startswith(b"name ")
