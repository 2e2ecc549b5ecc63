"""Trainings in which nothing is wrong, and what the rules say of them.

Each runs in this process as its script is written, under the hook; what was recorded goes through
a session as it would from a log.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import demo_scripts
import torch
from torch import nn
from training_loops import recording

import ampwatch
from ampwatch import watch
from ampwatch.controls import DTYPE, SCALER, Request
from ampwatch.record import Record
from ampwatch.session import Session


@dataclass(frozen=True)
class Healthy:
    """One training in which nothing is wrong."""

    name: str
    """Of a demo, or of a loop in ``LOOPS``."""
    why: str = "as it is"
    """How it differs from the script as it stands."""
    seed: int = 0
    dtype: str | None = None
    scaler: str | None = None
    constants: Mapping[str, object] = field(default_factory=dict)
    """The demo's own constants that are other than written there."""

    def __str__(self) -> str:
        return f"{self.name}, {self.why}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """What ``--dtype`` and ``--scaler`` would ask for."""
        asked = ((DTYPE, self.dtype), (SCALER, self.scaler))
        return tuple(Request(knob.name, value) for knob, value in asked if value is not None)


def float32(steps: int, seed: int) -> None:
    """A plain loop: no autocast, no scaler."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ampwatch.hook(model, optimizer)
    for _ in range(steps):
        x = torch.randn(32, 32)
        y = x[:, :4].argmax(1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def float32_schedule(steps: int, seed: int) -> None:
    """The same with all that a plain loop usually has: clipping, accumulation, a schedule."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    ampwatch.hook(model, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(2):
            x = torch.randn(16, 16)
            (nn.functional.mse_loss(model(x), x[:, :1] * x[:, 1:2]) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


LOOPS: dict[str, Callable[[int, int], None]] = {
    "float32": float32,
    "float32_schedule": float32_schedule,
}

MISTAKEN = ("clipping", "rounding")
"""Demos that show a mistake beside the right way."""
DEMOS = tuple(name for name in demo_scripts.NAMES if name not in MISTAKEN)
AS_THEY_ARE = (*map(Healthy, DEMOS), *map(Healthy, LOOPS))

NEAR_MISSES = (
    *(Healthy(name, f"seed {seed}", seed=seed) for name in (*DEMOS, *LOOPS) for seed in (1, 2)),
    # bfloat16 has the range of float32: with a scaler it is at most worth knowing.
    *(Healthy(name, "bfloat16", dtype="bfloat16") for name in DEMOS),
    *(Healthy(name, "bfloat16 without a scaler", dtype="bfloat16", scaler="off") for name in DEMOS),
    *(Healthy(name, "float32 without a scaler", dtype="float32", scaler="off") for name in DEMOS),
    # Where torch's initial scale of 65536 is one at which nothing overflows and nothing is lost.
    Healthy("linear", "a scale held at 65536", scaler="static"),
    Healthy("chargpt", "a scale held at 65536", scaler="static"),
    Healthy("linear", "lr a tenth", constants={"LEARNING_RATE": 1e-3}),
    Healthy("linear", "lr threefold", constants={"LEARNING_RATE": 0.03}),
    Healthy("linear", "a batch of 8", constants={"BATCH": 8}),
    Healthy("linear", "the usual growth interval", constants={"GROWTH_INTERVAL": 2000}),
    Healthy("gan", "lr a tenth", constants={"LEARNING_RATE": 1e-4}),
    Healthy("gan", "lr threefold", constants={"LEARNING_RATE": 3e-3}),
    Healthy("underflow", "lr a tenth", constants={"LEARNING_RATE": 1e-3}),
    Healthy("digits", "lr tenfold", constants={"LEARNING_RATE": 5e-3}),
    Healthy("digits", "lr a tenth", constants={"LEARNING_RATE": 5e-5}),
    Healthy("digits", "the usual growth interval", constants={"GROWTH_INTERVAL": 2000}),
    Healthy("chargpt", "lr a tenth", constants={"LEARNING_RATE": 3e-4}),
    Healthy("chargpt", "no warm-up", constants={"WARM_UP": 1}),
    Healthy("chargpt", "no accumulation", constants={"ACCUMULATE": 1}),
)


class _Recorded:
    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def poll(self) -> list[Record]:
        records, self._records = self._records, []
        return records


def examined(healthy: Healthy, steps: int) -> Session:
    """Train so many steps, and hand all that was recorded to a session."""
    with recording(initial=healthy.requests) as here, contextlib.redirect_stdout(io.StringIO()):
        try:
            if healthy.name in LOOPS:
                LOOPS[healthy.name](steps, healthy.seed)
            else:
                demo = demo_scripts.load(healthy.name)
                for constant, value in healthy.constants.items():
                    assert hasattr(demo, constant)
                    setattr(demo, constant, value)
                demo.main(["--device", "cpu", "--steps", str(steps), "--seed", str(healthy.seed)])
        finally:
            for each in watch._open.copy():
                each.close()
        here.close("finished")
    assert [notice for notice in here.notices if "stopped watching" in notice] == []
    session = Session(_Recorded(here.records))
    while session.pump():
        pass
    assert session.run.steps == steps
    return session
