"""How often a step asks a tensor for its value: on a GPU each time would be a wait."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from training_loops import RecordingHost

import ampwatch
from ampwatch.probe import activations as activations_module
from ampwatch.probe import gradients as gradients_module
from ampwatch.probe import steps as steps_module
from ampwatch.probe.gradients import Reading


class Reads(TorchDispatchMode):
    """Counts what makes the host wait for a device."""

    WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
        if function.name().split(".")[0] in self.WAITS:
            self.count += 1
        return function(*args, **(kwargs or {}))


def reads_a_step(hooked: bool, steps: int, overflow: bool = False, layers: int = 3) -> float:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watch = ampwatch.hook(net, optimizer, scaler) if hooked else None
    inputs, gain = torch.ones(2, 4), float("inf") if overflow else 1.0

    def take() -> None:
        optimizer.zero_grad()
        scaler.scale(net(inputs).pow(2).mean() * gain).backward()
        scaler.step(optimizer)
        scaler.update(8.0)

    take()
    with Reads() as reads:
        for _ in range(steps):
            take()
    if watch is not None:
        watch.close()
    return reads.count / steps


@pytest.fixture
def no_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module.Spacing, "due", lambda self, step: False)


def test_reads_on_the_cpu_are_a_norm_a_parameter_and_four(
    recorded: RecordingHost, no_detail: None
) -> None:
    # found_inf, scale, growth tracker and loss; on the CPU none of them waits for anything.
    for layers in (2, 5):
        own = reads_a_step(True, 10, layers=layers) - reads_a_step(False, 10, layers=layers)
        assert own == 2 * layers + 4


def test_reads_do_not_grow_with_the_number_of_steps(
    recorded: RecordingHost, no_detail: None
) -> None:
    assert reads_a_step(True, 40) == reads_a_step(True, 10)


class NeverReady:
    """Takes the tensors without reading one, as a copy that does not wait."""

    def __init__(self, groups: Any, device: Any) -> None:
        pass

    def ready(self) -> bool:
        return False


@pytest.mark.parametrize("overflow", [False, True])
@pytest.mark.parametrize("detail", [False, True])
def test_where_numbers_come_late_nothing_at_all_is_read(
    overflow: bool, detail: bool, recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        type = "elsewhere"

    original = Reading.__init__

    def read(self: Reading, parameters: Any) -> None:
        original(self, parameters)
        self.device = Elsewhere()  # type: ignore[assignment]
        self.norms = [torch.linalg.vector_norm(gradient) for gradient in self.gradients]

    monkeypatch.setattr(Reading, "__init__", read)
    monkeypatch.setattr(gradients_module, "_values", lambda gradients, odd: None)
    monkeypatch.setattr(steps_module, "Transfer", NeverReady)
    monkeypatch.setattr(activations_module, "at_hand", lambda tensor: False)
    monkeypatch.setattr(steps_module.Spacing, "due", lambda self, step: detail)
    monkeypatch.setattr(steps_module.StepReader, "flush", lambda self, wait: None)
    own = reads_a_step(True, 10, overflow) - reads_a_step(False, 10, overflow)
    assert own == 0
