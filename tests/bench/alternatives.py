"""What it costs to watch a training with ampwatch, and with what people use for a part of it.

python -m pip install 'ampwatch[bench]' && python tests/bench/alternatives.py [ROUNDS [DEMO ...]]

Step time watched / plain, and the same of the time that the process computes, which others on the
machine disturb less, but which leaves out what a second process does. All ways train the same
numbers in turns; each round is a few steps of each, and its ratio is that to the plain steps of the
same round. "plain again" is a second plain loop: how far it strays from 1 is how far any other
figure can be trusted.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from turns import Way, ratios, take_turns

import ampwatch

ROUNDS = 10
BLOCK = {"chargpt": 10, "digits": 20}
"""Steps of a round."""
WARM_UP = 4
"""Rounds before the first that counts: the three early detail steps of the hook are in them."""


class Hook(Way):
    """ampwatch.hook as it is."""

    def attach(self, model: Any, optimizer: Any, scaler: Any) -> None:
        self._watch = ampwatch.hook(model, optimizer, scaler)

    def held_back(self, seconds: float) -> None:
        # As a dashboard that holds a loop back: the turns of the others are no step time.
        self._watch._host.waited += seconds


class Debugger(Way):
    """Hugging Face transformers' debugger of underflow and overflow."""

    def attach(self, model: Any, optimizer: Any, scaler: Any) -> None:
        from transformers.debug_utils import DebugUnderflowOverflow

        self._debugger = DebugUnderflowOverflow(model)


class Anomaly(Way):
    """torch's own search for NaN in backward."""

    def attach(self, model: Any, optimizer: Any, scaler: Any) -> None:
        torch.autograd.set_detect_anomaly(True)


class TensorBoard(Way):
    """A histogram of each gradient at each step."""

    def attach(self, model: Any, optimizer: Any, scaler: Any) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._model = model
        self._folder = tempfile.TemporaryDirectory()
        self._writer = SummaryWriter(self._folder.name)

    def after_step(self, step: int) -> None:
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None:
                self._writer.add_histogram(name, parameter.grad, step)

    def results(self) -> dict[str, float]:
        self._writer.close()
        self._folder.cleanup()
        return {}


class Wandb(Way):
    """wandb.watch offline, with run.log at each step as its documentation has it."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def attach(self, model: Any, optimizer: Any, scaler: Any) -> None:
        import wandb

        self._folder = tempfile.TemporaryDirectory()
        os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=self._folder.name)
        self._run = wandb.init(project="bench", dir=self._folder.name)
        self._run.watch(model, log="gradients", **self._options)

    def after_step(self, step: int) -> None:
        self._run.log({"step": step})

    def results(self) -> dict[str, float]:
        self._run.finish()
        with contextlib.suppress(OSError):
            self._folder.cleanup()
        return {}


@dataclass(frozen=True)
class Known:
    """A way to watch, and how it compares."""

    make: Callable[[], Way]
    gives: str
    """Which part of what ampwatch tells."""
    package: str | None = None
    """What has to be installed for it."""


WAYS = {
    "plain": Known(Way, ""),
    "plain again": Known(Way, "the noise of this measurement"),
    "ampwatch.hook": Known(
        Hook, "loss, scale, skips, norms, clips, origins, order of calls; ranges now and then"
    ),
    "DebugUnderflowOverflow": Known(
        Debugger,
        "smallest and largest magnitudes in each forward pass; ends the run at inf or NaN there",
        "transformers",
    ),
    "detect_anomaly": Known(
        Anomaly, "the operation whose backward made NaN, where it ends the run; not inf"
    ),
    "TensorBoard histograms": Known(
        TensorBoard,
        "spread of each gradient, each step; raises where a gradient has no finite value",
        "tensorboard",
    ),
    "wandb.watch": Known(
        Wandb, "spread of each gradient, times the scale, every 1,000th backward", "wandb"
    ),
    "wandb.watch, log_freq=1": Known(
        lambda: Wandb(log_freq=1), "the same of each backward", "wandb"
    ),
}


def main(rounds: int, demos: list[str]) -> None:
    here = {}
    for name, known in WAYS.items():
        if known.package is not None and importlib.util.find_spec(known.package) is None:
            print(
                f"{name} is left out: {known.package} is not installed "
                "(pip install 'ampwatch[bench]')"
            )
        else:
            here[name] = known.make
    for demo in demos:
        times = take_turns(demo, here, rounds, BLOCK[demo], WARM_UP)
        plain = times["plain"]
        step = statistics.median(plain.wall) / BLOCK[demo] * 1000
        print(
            f"\n{demo}: a plain step takes {step:.1f} ms. Watched / plain, medians (lowest to "
            f"highest) of {rounds} rounds of {BLOCK[demo]} steps\n"
            f"{'':24} {'step time':26} {'computing':26} gives",
        )
        for name in here:
            if name == "plain":
                continue
            seen = times[name]
            if seen.error is not None:
                print(f"{name:24} ended with {seen.error}", flush=True)
                continue
            cells = (spread(ratios(seen.wall, plain.wall)), spread(ratios(seen.cpu, plain.cpu)))
            print(f"{name:24} {cells[0]:26} {cells[1]:26} {WAYS[name].gives}", flush=True)


def spread(values: list[float]) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(int(arguments[0]) if arguments else ROUNDS, arguments[1:] or list(BLOCK))
