"""The shipped demos, as files and as modules."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

FOLDER = Path(__file__).parents[2] / "demos"
NAMES = ("linear", "digits", "chargpt", "gan", "underflow", "clipping", "rounding", "forward")


def path(name: str) -> Path:
    return FOLDER / f"{name}.py"


def tree(name: str) -> ast.Module:
    return ast.parse(path(name).read_text(encoding="utf-8"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"demo_{name}", path(name))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def train(name: str, *options: str) -> torch.nn.Module:
    """Run a demo in this process, on the CPU."""
    return load(name).main(["--device", "cpu", *options])


class Scales:
    """Stands in for what ``ampwatch.hook`` returns: notes the scale, and plays the target key.

    ``gains`` maps the step from which a target gain holds to that gain.
    """

    def __init__(self, gains: dict[int, float] | None = None) -> None:
        self.gains = gains or {}
        self.target_gain = 1.0
        self.after: list[float] = []
        self.metrics: dict[str, list[float]] = {}

    def hook(self, model: object, optimizer: object, scaler: Any) -> Scales:
        self.scaler = scaler
        self.before_all = float(scaler.get_scale())
        return self

    def steps(self, iterable: Iterable[int]) -> Iterator[int]:
        for step in iterable:
            self.target_gain = self.gains.get(step, self.target_gain)
            yield step
            self.after.append(float(self.scaler.get_scale()))

    def log(self, **metrics: float) -> None:
        for name, value in metrics.items():
            self.metrics.setdefault(name, []).append(value)

    def summary(self) -> str:
        return ""

    def _changes(self) -> list[float]:
        before = [self.before_all, *self.after[:-1]]
        return [new / old for old, new in zip(before, self.after, strict=True)]

    def skipped(self, first: int = 0, last: int | None = None) -> list[int]:
        """The steps after which the scale was lower; in a demo only a skip lowers it."""
        return [
            step
            for step, change in enumerate(self._changes())
            if change < 1 and first <= step and (last is None or step < last)
        ]

    def grown(self) -> list[int]:
        return [step for step, change in enumerate(self._changes()) if change > 1]
