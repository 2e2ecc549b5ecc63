"""Compiled and scripted models train under a hook as without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from training_loops import Case, RecordingHost, assert_same_weights, train

import ampwatch
from ampwatch import autohook

compiled_graphs = 0


def counting_backend(graph: Any, inputs: Any) -> Any:
    global compiled_graphs
    compiled_graphs += 1
    return graph.forward


def compile_eagerly(model: nn.Module) -> Any:
    torch._dynamo.reset()
    return torch.compile(model, backend=counting_backend)


COMPILED = Case(steps=12, wrap=compile_eagerly, scaler={"growth_interval": 4})


@pytest.mark.parametrize("automatic", [False, True])
def test_a_compiled_model_trains_as_ever_and_is_compiled_once(
    automatic: bool, recorded: RecordingHost
) -> None:
    global compiled_graphs
    compiled_graphs = 0
    plain = train(COMPILED, hooked=False)
    without = compiled_graphs
    if automatic:
        autohook.install()
    hooked = train(COMPILED, hooked=not automatic)
    assert compiled_graphs == 2 * without
    assert_same_weights(plain.weights, hooked.weights)
    assert recorded.skips == plain.skips
    assert len(recorded.steps) == COMPILED.steps
    assert recorded.notices == []
    assert set(recorded.infos[-1].tensors) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_a_model_compiled_down_to_autograd(recorded: RecordingHost) -> None:
    case = Case(steps=4, wrap=lambda model: torch.compile(model, backend="aot_eager"))
    plain, hooked = train(case, hooked=False), train(case, hooked=True)
    assert_same_weights(plain.weights, hooked.weights)
    assert recorded.skips == plain.skips
    assert recorded.facts == set()


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_a_compiled_step_of_the_optimizer_is_seen(recorded: RecordingHost) -> None:
    torch._dynamo.reset()
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    ampwatch.hook(net, optimizer)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).pow(2).mean().backward()
        step()
    assert [record.step for record in recorded.steps] == [0, 1, 2]
    assert all(record.grad_norm for record in recorded.steps)


class HalfInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(values)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_with_autocast_inside_can_be_scripted_while_watched(
    recorded: RecordingHost,
) -> None:
    net = nn.Linear(2, 2)
    ampwatch.hook(net, torch.optim.SGD(net.parameters(), 1e-3))
    scripted = torch.jit.script(HalfInside())
    assert scripted(torch.ones(2, 4)).dtype is torch.bfloat16
    optimizer = torch.optim.SGD(scripted.parameters(), lr=1e-3)
    ampwatch.hook(scripted, optimizer)
    scripted(torch.ones(2, 4)).float().sum().backward()
    optimizer.step()
    assert set(recorded.infos[-1].tensors) == {"linear.weight", "linear.bias"}
    assert recorded.notices == []
