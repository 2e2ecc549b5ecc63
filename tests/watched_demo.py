"""Runs a demo and writes down what watching could change: every bit of its weights, and the
seconds a step took, by the same clock however it is run.

python watched_demo.py NAME STEPS RESULT [plain]

``plain`` puts nothing in place of the hook: the loop is what it would be without ampwatch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ampwatch

WARM_UP = 20
DEMOS = Path(__file__).parents[1] / "demos"


class Nothing:
    """What a loop without ampwatch would have in place of a watch."""

    target_gain = 1.0

    def steps(self, iterable: Iterable[Any], total: int | None = None) -> Iterator[Any]:
        return iter(iterable)

    def log(self, **metrics: Any) -> None:
        """Nobody keeps it."""

    def summary(self) -> str:
        return ""


class Timed:
    """A watch, or nothing, whose steps are timed."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self.seconds: list[float] = []

    def steps(self, iterable: Iterable[Any], total: int | None = None) -> Iterator[Any]:
        last = None
        for item in self._watch.steps(iterable, total):
            now = time.perf_counter()
            if last is not None:
                self.seconds.append(now - last)
            last = now
            yield item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)


def digest(model: nn.Module) -> str:
    """Every bit of the weights and buffers."""
    bits = hashlib.sha256()
    for key, value in model.state_dict().items():
        bits.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        bits.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return bits.hexdigest()


def main(name: str, steps: str, result: str, *plain: str) -> None:
    real = ampwatch.hook
    made: list[Timed] = []

    def hook(*args: Any, **kwargs: Any) -> Timed:
        made.append(Timed(Nothing() if plain else real(*args, **kwargs)))
        return made[-1]

    ampwatch.hook = hook  # type: ignore[assignment]
    spec = importlib.util.spec_from_file_location(name, DEMOS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    demo = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    model = demo.main(["--steps", steps, "--device", "cpu"])
    # Evaluations fall into single steps of some demos: the median leaves them out.
    seconds = statistics.median(made[0].seconds[WARM_UP:])
    Path(result).write_text(json.dumps({"weights": digest(model), "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
