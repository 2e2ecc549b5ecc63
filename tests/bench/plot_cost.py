"""CPU time of a frame of four plots, cost of adding to a series, and its memory.

python tests/bench/plot_cost.py
"""

from __future__ import annotations

import math
import random
import statistics
import time
import tracemalloc

from ampwatch.history import History
from ampwatch.plot.draw import draw
from ampwatch.plot.spec import Curve, Mark, PlotSpec

WIDTH, HEIGHT = 80, 22
POINTS = 5_000
FRAMES = 200


class Training:
    """Five series as a run makes them, noisy, with skipped steps."""

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.loss, self.scale = History(), History()
        self.norm, self.clipped, self.counts = History(), History(), History()
        self.marks: list[Mark] = []
        self.step = 0
        self.doublings = 16

    def train(self, steps: int) -> None:
        for _ in range(steps):
            step, noise = self.step, self.random.random()
            skipped = noise < 0.01
            norm = math.inf if skipped else math.exp(self.random.gauss(-step / 20_000, 0.5))
            self.loss.add(step, 3 * math.exp(-step / 3000) + 0.2 * noise)
            self.scale.add(step, 2.0**self.doublings)
            self.norm.add(step, norm)
            self.clipped.add(step, min(norm, 1.0))
            self.counts.add(step, float(int(noise * 400)) if skipped else 0.0)
            if skipped:
                self.marks.append(Mark(step, "skip"))
            self.doublings = max(self.doublings - 1, 2) if skipped else self.doublings
            self.doublings += step % 100 == 99
            self.step += 1

    def specs(self, window: int | None) -> list[PlotSpec]:
        last = self.step - 1
        first = 0 if window is None else last - window
        marks = tuple(mark for mark in self.marks if mark.step >= first)
        norms = (Curve("before", self.norm), Curve("clipped", self.clipped))

        def plot(name: str, *curves: Curve, **more: object) -> PlotSpec:
            value = f"{curves[0].history.last:.4g}"
            return PlotSpec(name, name, value, curves, first, last, **more)  # type: ignore[arg-type]

        return [
            plot("loss", Curve("loss", self.loss), marks=marks),
            plot("scale", Curve("scale", self.scale), axis="log2", marks=marks),
            plot("grad_norm", *norms, axis="log10", lines=((1.0, "clip"),)),
            plot("nonfinite", Curve("nonfinite", self.counts), floor_zero=True),
        ]


def frame_cost(points: int, window: int | None, steps_a_frame: int) -> tuple[float, float]:
    """Median and 95th percentile of the CPU milliseconds of four plots."""
    training = Training()
    training.train(points)
    costs = []
    for _ in range(FRAMES):
        training.train(steps_a_frame)
        specs = training.specs(window)
        start = time.process_time()
        for spec in specs:
            draw(spec, WIDTH, HEIGHT)
        costs.append((time.process_time() - start) * 1000)
    costs.sort()
    return statistics.median(costs), costs[int(0.95 * len(costs))]


def memory_after(adds: int) -> int:
    tracemalloc.start()
    history = History()
    for step in range(adds):
        history.add(step, 1.5)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert history.version == adds
    return used


def add_cost(adds: int = 1_000_000) -> float:
    """Microseconds of one add, folding included."""
    history = History()
    start = time.process_time()
    for step in range(adds):
        history.add(step, 1.5)
    return (time.process_time() - start) / adds * 1e6


if __name__ == "__main__":
    print(f"four plots of {WIDTH}x{HEIGHT}, CPU ms a frame (median, 95th percentile):")
    for points, window, steps in (
        (POINTS, None, 1), (POINTS, None, 500), (POINTS, 1000, 50), (200_000, None, 500),
    ):  # fmt: skip
        median, high = frame_cost(points, window, steps)
        shown = "whole run" if window is None else f"last {window}"
        print(f"  {points:>9,} points, {shown}, {steps} steps a frame: {median:.2f}, {high:.2f}")
    print(f"History.add: {add_cost():.2f} us")
    for adds in (10_000, 1_000_000):
        print(f"memory of one History after {adds:>9,} adds: {memory_after(adds) / 1024:.0f} KiB")
