"""Whatever goes wrong inside ampwatch, training goes on to the bit, and it is said once."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from training_loops import Case, RecordingHost, assert_same_weights, train

import ampwatch
from ampwatch import watch as watch_module
from ampwatch.host import StopTraining
from ampwatch.probe import private
from ampwatch.probe.draft import Draft
from ampwatch.probe.losses import Losses
from ampwatch.probe.parameters import Parameters
from ampwatch.probe.steps import StepReader
from ampwatch.recorder import Recorder

CASE = Case(steps=30, unscale=True, clip={"max_norm": 0.5}, scaler={"growth_interval": 4})


def broken(*args: Any, **kwargs: Any) -> Any:
    raise LookupError("a bug of ours")


PLACES: list[tuple[Any, str]] = [
    (StepReader, "read"),
    (StepReader, "emit"),
    (Draft, "finish"),
    (Losses, "scaled"),
    (Losses, "back"),
    (Losses, "taken"),
    (Parameters, "learn_order"),
    (Recorder, "_tell"),
    (private, "autocast_fields"),
    (private, "found_infs"),
    (private, "autocast_active"),
    (private, "is_unscaled"),
    (RecordingHost, "put"),
]


@pytest.mark.parametrize(("owner", "name"), PLACES, ids=[name for _, name in PLACES])
@pytest.mark.parametrize("calls_before", [0, 3])
def test_a_bug_of_ours_ends_watching_and_nothing_else(
    owner: Any,
    name: str,
    calls_before: int,
    recorded: RecordingHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name == "_tell":
        calls_before = 0  # it is called once
    plain = train(CASE, hooked=False)
    said: list[str] = []
    monkeypatch.setattr(RecordingHost, "say", lambda self, text: said.append(text))
    working, count = getattr(owner, name), 0

    def sometimes(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return working(*args, **kwargs) if count <= calls_before else broken()

    monkeypatch.setattr(owner, name, sometimes)
    hooked = train(CASE, hooked=True)
    assert_same_weights(plain.weights, hooked.weights)
    assert hooked.skips == plain.skips
    assert said == ["ampwatch stopped watching, training goes on: LookupError: a bug of ours"]
    assert not watch_module._open


def test_after_our_failure_torch_is_as_it_was_and_the_log_gets_its_end(
    recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = torch.autograd.backward
    net = nn.Linear(2, 1)
    optimizer, scaler = torch.optim.SGD(net.parameters(), 1e-3), GradScaler("cpu")
    watch = ampwatch.hook(net, optimizer, scaler)
    monkeypatch.setattr(StepReader, "read", broken)
    scaler.scale(net(torch.ones(1, 2)).sum()).backward()
    scaler.step(optimizer)
    assert torch.autograd.backward is original
    assert type(scaler) is GradScaler
    assert "ampwatch saw no optimizer step" in watch.summary()
    watch.close()


def test_stop_comes_out_of_step_or_update_only() -> None:
    for scaled in (True, False):
        from training_loops import recording

        with recording(steps=2) as here:
            net = nn.Linear(2, 1)
            optimizer, scaler = torch.optim.SGD(net.parameters(), 1e-3), GradScaler("cpu")
            watch = ampwatch.hook(net, optimizer, scaler if scaled else None)
            where = ""
            try:
                for _ in range(10):
                    where = "backward"
                    loss = net(torch.ones(1, 2)).sum()
                    (scaler.scale(loss) if scaled else loss).backward()
                    where = "step"
                    if scaled:
                        scaler.step(optimizer)
                        where = "update"
                        scaler.update()
                    else:
                        optimizer.step()
            except StopTraining:
                assert where == ("update" if scaled else "step")
            else:
                pytest.fail("the loop was to be stopped")
            watch.close()
            assert len(here.steps) == 2


SETTLING_STEPS, MEASURED_STEPS, SKIP_EVERY = 3000, 2000, 5
MOST_GROWN_BYTES = 10_000
"""Of Python's objects none has less than 24 bytes: one kept at each step, or two at each skip, are
more. Some hundreds of torch's own stay on free lists, most of them before they are counted."""


def test_memory_does_not_grow_over_ten_thousand_steps(recorded: RecordingHost) -> None:
    recorded.put = lambda record: None  # type: ignore[method-assign]
    grown = Small().growth()
    watched = Small()
    watched.watch = ampwatch.hook(watched.net, watched.optimizer, watched.scaler)
    assert watched.growth() - grown < MOST_GROWN_BYTES
    resident = _resident()
    watched.steps(10_000 - SETTLING_STEPS - MEASURED_STEPS)
    assert _resident() - resident < 8 * 2**20


class Small:
    """A loop in which every fifth step is skipped."""

    def __init__(self) -> None:
        self.net = nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 1e-4)
        self.scaler = GradScaler("cpu")
        self.watch: ampwatch.Watch | None = None
        self._inputs = torch.ones(1, 2)

    def steps(self, count: int) -> None:
        for step in range(count):
            self.optimizer.zero_grad()
            loss = self.net(self._inputs).sum() * (float("inf") if step % SKIP_EVERY == 0 else 1.0)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update(64.0)
            if self.watch is not None:
                self.watch.log(accuracy=step)

    def growth(self) -> int:
        """Bytes that many steps leave behind, when all that has settled has settled.

        torch's own tuples stay on Python's free lists until the garbage is collected.
        """
        tracemalloc.start(1)
        try:
            self.steps(SETTLING_STEPS)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            self.steps(MEASURED_STEPS)
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
