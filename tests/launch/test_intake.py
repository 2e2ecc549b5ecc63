"""Pipes are read beside everything else, in bounded memory, and let go of at the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from ampwatch.launch import intake
from ampwatch.launch.intake import Intake, wide_pipe


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_was_written_arrives_on_its_own_pipe_in_order() -> None:
    (first, write_first), (second, write_second) = wide_pipe(), wide_pipe()
    taker = Intake(first, second)
    os.write(write_first, b"one")
    os.write(write_second, b"two")
    os.write(write_first, b"three")
    os.close(write_first)
    os.close(write_second)
    wait_until(lambda: taker.ended)
    taker.close()
    assert taker.take(first) == b"onethree"
    assert taker.take(second) == b"two"
    assert taker.take(first) == b""


def test_memory_is_bounded_when_nobody_takes_and_nothing_is_lost() -> None:
    read, write = wide_pipe()
    taker = Intake(read)
    block = b"x" * 65536
    total = 20 * intake.HELD_BYTES

    def flood() -> None:
        for _ in range(total // len(block)):
            os.write(write, block)
        os.close(write)

    writer = threading.Thread(target=flood)
    writer.start()
    pipe = taker._pipes[read]
    wait_until(lambda: pipe.full)
    time.sleep(0.2)
    held = sum(map(len, pipe.chunks))
    assert held < intake.HELD_BYTES + intake.READ_BYTES
    taken = 0
    while not (taker.ended and not pipe.chunks):
        taken += len(taker.take(read))
        time.sleep(0.001)
    writer.join()
    taker.close()
    assert taken + len(taker.take(read)) == total


def test_closing_takes_what_is_there_from_a_pipe_that_stays_open() -> None:
    read, write = wide_pipe()
    taker = Intake(read)
    os.write(write, b"last words")
    taker.close()
    assert taker.take(read) == b"last words"
    taker.close()  # any number of times
    os.close(write)


def test_closing_does_not_wait_for_a_writer_that_never_stops() -> None:
    read, write = wide_pipe()
    stop = threading.Event()

    def write_on() -> None:
        try:
            while not stop.is_set():
                os.write(write, b"x" * 4096)
        except BrokenPipeError:
            pass

    writer = threading.Thread(target=write_on)
    taker = Intake(read)
    writer.start()
    wait_until(lambda: bool(taker._pipes[read].arrived))
    taker.close()
    stop.set()
    writer.join(30)
    assert not writer.is_alive()
    os.close(write)
