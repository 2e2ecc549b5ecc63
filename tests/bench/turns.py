"""Trains a demo in several processes that take turns, each watched in its own way.

All are forked from one process, compute the same numbers from the same seed, and train a few steps
at a time while the others wait. So two ways are compared over the same steps within a second or
two, and whatever else the machine does hits them alike.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

DEMOS = Path(__file__).parents[2] / "demos"
SETTLE_SECONDS = 0.05
"""Between two turns: what somebody still writes in the background is not put on the next one."""
NO_SKIPS = {"GROWTH_INTERVAL": 10_000}
"""Of a demo's constants. Some ways end the run at an overflow; all are timed without one."""


class Way:
    """One way to watch a training; this one is not to watch it."""

    def attach(self, model: Any, optimizer: Any, scaler: Any) -> None:
        """Training is about to begin."""

    def after_step(self, step: int) -> None:
        """The optimizer has stepped; its gradients are still there."""

    def held_back(self, seconds: float) -> None:
        """It was others' turn for so long."""

    def results(self) -> dict[str, float]:
        """What it has to say of itself in the end."""
        return {}


@dataclass
class Times:
    """What one way took."""

    wall: list[float] = field(default_factory=list)
    """Seconds of each turn of training."""
    cpu: list[float] = field(default_factory=list)
    """Seconds that its process computed in each turn, in all threads."""
    results: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    """Why it did not come to the end."""


class _Over(Exception):
    """All steps are taken; what a demo does then is not of interest."""


class _Turns:
    """Stands in for what ``ampwatch.hook`` returns in a demo."""

    target_gain = 1.0

    def __init__(self, way: Way, block: int, others: Connection) -> None:
        self._way = way
        self._block = block
        self._others = others

    def hook(self, model: Any, optimizer: Any, scaler: Any) -> _Turns:
        self._way.attach(model, optimizer, scaler)
        self._others.send((0.0, 0.0))
        return self

    def steps(self, iterable: Iterable[int]) -> Iterator[int]:
        wall = cpu = 0.0
        for step in iterable:
            if step % self._block == 0:
                if step:
                    self._others.send((time.perf_counter() - wall, time.process_time() - cpu))
                self._wait()
                wall, cpu = time.perf_counter(), time.process_time()
            yield step
            self._way.after_step(step)
        self._others.send((time.perf_counter() - wall, time.process_time() - cpu))
        raise _Over

    def log(self, **metrics: float) -> None:
        """Nobody keeps it."""

    def _wait(self) -> None:
        begun = time.perf_counter()
        self._others.recv()
        self._way.held_back(time.perf_counter() - begun)


def take_turns(
    demo: str, ways: dict[str, Callable[[], Way]], blocks: int, block: int, warm_up: int
) -> dict[str, Times]:
    """Train a demo in each way, a block of steps in turn.

    Args:
        blocks: so many are timed.
        block: steps of one.
        warm_up: blocks before those.
    """
    fork = multiprocessing.get_context("fork")
    lines: dict[str, Connection] = {}
    times = {name: Times() for name in ways}
    processes = []
    for name, make in ways.items():
        ours, theirs = fork.Pipe()
        arguments = (demo, make, (warm_up + blocks) * block, block, theirs)
        processes.append(fork.Process(target=_child, args=arguments, daemon=False))
        processes[-1].start()
        theirs.close()
        lines[name] = ours
    for name in ways:
        _take(lines, times, name)  # it is ready
    for number in range(warm_up + blocks):
        order = list(lines)
        turn = number % len(order)
        order = order[turn:] + order[:turn]
        for name in order if number % 2 else reversed(order):
            lines[name].send("go")
            seconds = _take(lines, times, name)
            if seconds is not None and number >= warm_up:
                times[name].wall.append(seconds[0])
                times[name].cpu.append(seconds[1])
            time.sleep(SETTLE_SECONDS)
    for name, line in lines.items():
        times[name].results = line.recv()
    for process in processes:
        process.join()
    return times


def _take(
    lines: dict[str, Connection], times: dict[str, Times], name: str
) -> tuple[float, float] | None:
    """The seconds of a turn, by the wall and of computing; what has failed takes no more turns."""
    answer = lines[name].recv()
    if isinstance(answer, tuple):
        return answer
    times[name].error = str(answer)
    del lines[name]
    return None


def _child(demo: str, make: Callable[[], Way], steps: int, block: int, others: Connection) -> None:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            way = make()
            turns = _Turns(way, block, others)
            module = load(demo)
            module.ampwatch = _Namespace(turns)
            for constant, value in NO_SKIPS.items():
                setattr(module, constant, value)
            with contextlib.suppress(_Over):
                module.main(["--device", "cpu", "--steps", str(steps)])
            others.send(way.results())
    except BaseException as error:
        traceback.print_exc()
        others.send(f"{type(error).__name__}: {error}".splitlines()[0])


class _Namespace:
    """What a demo sees as ``ampwatch``."""

    def __init__(self, turns: _Turns) -> None:
        self.hook = turns.hook


def load(demo: str) -> ModuleType:
    """A demo as a module."""
    spec = importlib.util.spec_from_file_location(demo, DEMOS / f"{demo}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[demo] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ratios(watched: Sequence[float], plain: Sequence[float]) -> list[float]:
    """Watched / plain, turn by turn."""
    return [one / other for one, other in zip(watched, plain, strict=True)]
