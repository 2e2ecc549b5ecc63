"""Runs a demo and writes down every bit of the weights it ends with.

python weights_of_demo.py NAME STEPS RESULT [plain]

``plain`` puts nothing in place of the hook: the loop is what it would be without ampwatch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

import ampwatch

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


def main(name: str, steps: str, result: str, *plain: str) -> None:
    if plain:
        ampwatch.hook = lambda *args, **kwargs: Nothing()  # type: ignore[assignment]
    spec = importlib.util.spec_from_file_location(name, DEMOS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    demo = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    model = demo.main(["--steps", steps, "--device", "cpu"])
    digest = hashlib.sha256()
    for key, value in model.state_dict().items():
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    Path(result).write_text(digest.hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
