"""Loops that never heard of ampwatch: scaler, optimizer and model are found by themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from training_loops import CLIPPED, RecordingHost, assert_same_weights, strange_script, train

import ampwatch
from ampwatch import autohook, host


def test_a_strange_script_is_recorded_as_if_it_were_hooked(recorded: RecordingHost) -> None:
    plain = train(CLIPPED, hooked=False)
    watch = autohook.install()
    strange = train(CLIPPED, hooked=False)
    watch.close()
    assert_same_weights(plain.weights, strange.weights)
    assert recorded.skips == plain.skips
    assert [r.grad_norm for r in recorded.steps if not r.skipped] == pytest.approx(
        [norm for step, norm in enumerate(plain.norms) if step not in plain.skips], rel=1e-6
    )
    assert set(recorded.infos[-1].tensors) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    scaler = recorded.infos[-1].scaler
    assert scaler is not None
    assert scaler.growth_interval == 7


def test_without_a_host_there_is_nobody_to_report_to() -> None:
    host.install(None)
    with pytest.raises(RuntimeError, match="needs a host"):
        autohook.install()


def test_ampwatch_hook_is_the_function_also_when_the_automatic_hook_came_first(
    recorded: RecordingHost,
) -> None:
    autohook.install()
    assert callable(ampwatch.hook)
    assert ampwatch.hook is not None


def test_it_steps_aside_for_the_scripts_own_hook_and_its_scaler_stays_found(
    recorded: RecordingHost,
) -> None:
    autohook.install()
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    ampwatch.hook(net, optimizer)  # the scaler is not handed over
    for _ in range(2):
        scaler.scale(net(torch.ones(2, 4)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert [record.scale for record in recorded.steps] == [4.0, 4.0]
    assert {record.skipped for record in recorded.steps} == {False}


def test_the_first_clip_of_a_strange_script_without_a_scaler(recorded: RecordingHost) -> None:
    autohook.install()
    norms = strange_script(steps=3, clip=0.01)
    assert [record.grad_norm for record in recorded.steps] == pytest.approx(norms, rel=1e-6)
    for record in recorded.steps:
        assert record.clipped_norm == pytest.approx(0.01, rel=1e-3)


def test_names_come_from_inside_a_wrapper(recorded: RecordingHost) -> None:
    autohook.install()

    class Shell(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.module = inner

        def forward(self, *inputs: Any) -> Any:
            return self.module(*inputs)

    shell = Shell(nn.Sequential(nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(shell.parameters(), lr=1e-3)
    list(shell.module.parameters())
    shell(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert set(recorded.infos[-1].tensors) == {"0.weight", "0.bias"}


def test_names_are_found_when_the_optimizer_was_there_before_the_hook(
    recorded: RecordingHost,
) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1, bias=False))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    autohook.install()
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert set(recorded.infos[-1].tensors) == {"0.weight", "0.bias", "1.weight"}


def test_parameters_without_a_module_are_named_by_their_place(recorded: RecordingHost) -> None:
    autohook.install()
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    weight.sum().backward()
    optimizer.step()
    assert recorded.infos[-1].tensors == ("group0.param0",)


def test_two_networks_are_told_apart_by_name(recorded: RecordingHost) -> None:
    autohook.install()
    nets = [nn.Linear(4, 1), nn.Sequential(nn.Linear(4, 1))]
    parameters = [parameter for net in nets for parameter in net.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    (nets[0](torch.ones(1, 4)) + nets[1](torch.ones(1, 4))).sum().backward()
    optimizer.step()
    assert set(recorded.infos[-1].tensors) == {
        "Linear.weight",
        "Linear.bias",
        "Sequential.0.weight",
        "Sequential.0.bias",
    }
