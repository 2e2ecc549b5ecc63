"""A training that needs no torch: it follows GradScaler's rules on made-up gradients."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from ampwatch.controls import Controls, Request
from ampwatch.job import ENDED
from ampwatch.output import OutputBuffer
from ampwatch.record import (
    Exponents,
    Notice,
    Record,
    RunEnd,
    RunInfo,
    ScalerInfo,
    StepRecord,
    TensorStats,
)
from ampwatch.session import Session
from ampwatch.tui.app import DashboardApp
from tests.anatomies import SKIPPED, TAKEN

FLOAT16_MAX = 65504.0
NAMES = ("2.bias", "2.weight", "0.bias", "0.weight")


def bell(middle: int) -> Exponents:
    """64 values around a power of two."""
    return Exponents(middle - 3, (1, 6, 15, 20, 15, 6, 1))


class FakeJob:
    """Takes steps when told to, or ``per_poll`` of them whenever it is polled."""

    def __init__(self, per_poll: int = 0, *, names: tuple[str, ...] = NAMES, seed: int = 1) -> None:
        self.output = OutputBuffer()
        self.state = "starting"
        self.exit_code: int | None = None
        self.error: str | None = None
        self.waiting_for: str | None = None
        self.per_poll = per_poll
        self.names = names
        self.requests: list[Request] = []
        self.calls: list[str] = []
        self.deaf = False
        """Does not react to stop(), only to kill()."""
        self.metrics: dict[str, float] = {}
        self._random = random.Random(seed)
        self._ready: list[Record] = []
        self._reset()

    def _reset(self) -> None:
        self.step = 0
        self.scale = 65536.0
        self.tracker = 0
        self.values: dict[str, Any] = {"dtype": "float16", "scaler": "dynamic"}
        self.target_gain = self.loss_gain = 1.0
        self.paused = False
        self.inject = False
        self.explain: list[str | None] = []
        """Which tensor to follow, if the next step is to be taken apart."""

    # What the app calls.

    def start(self) -> None:
        self.calls.append("start")

    def poll(self) -> list[Record]:
        if self.state in ("starting", "running") and self.per_poll and not self.paused:
            self.train(self.per_poll)
        ready, self._ready = self._ready, []
        return ready

    def send(self, request: Request) -> None:
        self.requests.append(request)
        name, value = request.knob, request.value
        if name == "pause":
            self.paused = bool(value)
        elif name == "step":
            self.paused = True
            self.train(1)
        elif name in ("dtype", "scaler"):
            self.values[name] = value
        elif name == "target_gain":
            self.target_gain = float(value or 1)
        elif name == "loss_gain":
            self.loss_gain = float(value or 1)
        elif name == "scale":
            self.scale = min(max(self.scale * float(value or 1), 2.0**-60), 2.0**60)
        elif name == "inject":
            self.inject = True
        elif name == "explain":
            self.explain = [str(value) if value else None]

    def stop(self) -> None:
        self.calls.append("stop")
        if self.deaf:
            self.state = "stopping"
            self.waiting_for = "The script is in the middle of a step."
        else:
            self.finish("stopped")

    def kill(self) -> None:
        self.calls.append("kill")
        self.finish("stopped")

    def restart(self) -> None:
        self.calls.append("restart")
        self._reset()
        self.output.clear()
        self.error = None
        self.state = "starting"
        self.hello()

    # What a test calls.

    def say(self, record: Record) -> None:
        self._ready.append(record)

    def hello(self, name: str = "linear", **fields: Any) -> None:
        """torch is loaded and the model is known."""
        scaler = ScalerInfo("dynamic", 65536.0, 2.0, 0.5, 50)
        known = {"torch": "2.13.0", "device": "cpu", "tensors": self.names, "scaler": scaler}
        self.say(RunInfo(name=name, started=1.0 + len(self.calls), **{**known, **fields}))

    def train(self, steps: int) -> None:
        """Take steps; gradients beyond float16 at the scale in force are infinite."""
        self.state = "running"
        for _ in range(steps):
            self._one_step()

    def _one_step(self) -> None:
        step, noise = self.step, self._random.uniform(0.7, 1.4)
        loss = self.target_gain**2 * (0.003 + 1.2 * math.exp(-step / 150)) * noise
        norm = 0.6 * self.target_gain * (0.05 + math.exp(-step / 200)) * noise
        half = self.values["dtype"] == "float16"
        scaling = self.values["scaler"] != "off" and half
        factor = (self.scale if scaling else 1.0) * self.loss_gain
        overflow = (half and norm * factor > FLOAT16_MAX) or self.inject
        self.inject = False
        bad = len(self.names) if overflow else 0
        self.say(
            StepRecord(
                step=step,
                time=step / 30,
                loss=loss,
                losses=1,
                scale=self.scale if scaling else 1.0,
                growth_tracker=self.tracker,
                skipped=overflow and scaling,
                grad_norm=math.inf if overflow else norm,
                clipped_norm=None if overflow else min(norm, 1.0),
                grad_max=math.inf if overflow else norm / 3,
                nonfinite_tensors=bad,
                nonfinite_values=bad * 64,
                origin=self.names[1] if overflow else None,
                dtype=self.values["dtype"],
                scaler=self.values["scaler"],
                lr=0.001,
                optimizer="Adam",
                target_gain=self.target_gain,
                loss_gain=self.loss_gain,
                overhead=0.004,
                metrics=dict(self.metrics),
            )
        )
        if self.explain:
            sample, tensor = SKIPPED if overflow else TAKEN, self.explain.pop()
            assert sample.followed is not None
            followed = replace(sample.followed, name=tensor or sample.followed.name)
            self.say(replace(sample, step=step, followed=followed))
        if overflow or step % 20 == 0:
            self.say(self._tensors(step, norm, overflow))
        if scaling:
            if overflow:
                self.scale, self.tracker = self.scale / 2, 0
            else:
                self.tracker += 1
                if self.tracker == 50:
                    self.scale, self.tracker = self.scale * 2, 0
        self.step += 1

    def _tensors(self, step: int, norm: float, overflow: bool) -> TensorStats:
        count = len(self.names)
        return TensorStats(
            step=step,
            name=self.names,
            norm=tuple(math.inf if overflow and n < 2 else norm / (n + 1) for n in range(count)),
            max=tuple(math.inf if overflow and n < 2 else norm / (n + 3) for n in range(count)),
            zeros=tuple(3 * n for n in range(count)),
            nonfinite=tuple(7 if overflow and n < 2 else 0 for n in range(count)),
            size=(64,) * count,
            exponents=tuple(bell(-24 - n) for n in range(count)),
            scale=self.scale,
        )

    def finish(self, status: str = "finished", error: str | None = None) -> None:
        if self.state in ENDED:
            return
        self.state, self.error = status, error
        self.exit_code = {"finished": 0, "failed": 1}.get(status, 130)
        self.waiting_for = None
        self.say(RunEnd(status, self.step, error))

    def fail(self) -> None:
        traceback = (
            "Traceback (most recent call last):\n"
            '  File "train.py", line 41, in <module>\n'
            "    main()\n"
            "RuntimeError: shapes (64x32) and (64x1) do not fit\n"
        )
        self.output.feed(traceback.encode())
        self.finish("failed", "RuntimeError: shapes (64x32) and (64x1) do not fit")


class Recorded:
    """A recording: all its records come at once."""

    def __init__(self, *records: Record) -> None:
        self._records = list(records)

    def poll(self) -> list[Record]:
        records, self._records = self._records, []
        return records


def dashboard(job: FakeJob, name: str = "linear") -> DashboardApp:
    """A dashboard on a fake training, wired as the command line wires a real one."""
    panel = Controls(send=job.send)
    return DashboardApp(Session(job, panel), panel, job, name=name)


def recording(*records: Record, name: str = "linear") -> DashboardApp:
    """A dashboard on a recording."""
    panel = Controls()
    return DashboardApp(Session(Recorded(*records), panel), panel, None, name=name)


def notice(text: str, **fields: Any) -> Notice:
    return Notice(text, **fields)
