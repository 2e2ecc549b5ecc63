"""Runs a demo and writes down the seconds a step took: the same clock for every way to run it.

python timed_demo.py NAME STEPS RESULT [plain]

``plain`` puts nothing in place of the hook, so that the loop is what it would be without ampwatch.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ampwatch

WARM_UP = 20
DEMOS = Path(__file__).parents[2] / "demos"


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


def main(name: str, steps: str, result: str, *plain: str) -> None:
    spec = importlib.util.spec_from_file_location(name, DEMOS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    real = ampwatch.hook
    made: list[Timed] = []

    def hook(*args: Any, **kwargs: Any) -> Timed:
        made.append(Timed(Nothing() if plain else real(*args, **kwargs)))
        return made[-1]

    ampwatch.hook = hook  # type: ignore[assignment]
    sys.modules[name] = demo
    spec.loader.exec_module(demo)
    demo.main(["--steps", steps])
    # Evaluations fall into single steps of some demos: the median leaves them out.
    Path(result).write_text(str(statistics.median(made[0].seconds[WARM_UP:])))


if __name__ == "__main__":
    main(*sys.argv[1:])
