"""Several optimizers, scalers and hooks at once; optimizers and layers that come later."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from training_loops import RecordingHost, found_inf, true_norm

import ampwatch

STEPS = 60


def two_players(recorded: RecordingHost, both_first: bool) -> dict[str, list[tuple[int, bool]]]:
    """Two networks under one scaler, the second of which overflows at other steps than the first.

    Returns what the loop itself found, by optimizer.
    """
    torch.manual_seed(0)
    nets = [nn.Linear(4, 1), nn.Linear(4, 1)]
    optimizers = [
        torch.optim.SGD(nets[0].parameters(), lr=1e-3),
        torch.optim.Adam(nets[1].parameters(), lr=1e-3),
    ]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=8)
    watch = ampwatch.hook(nn.ModuleList(nets), optimizers, scaler)
    truth: dict[str, list[tuple[int, bool]]] = {"SGD": [], "Adam": []}

    def loss_of(index: int, step: int) -> torch.Tensor:
        inputs = torch.randn(16, 4)
        gain = 500.0 if step % (7 + index) == 3 else 1.0
        with torch.autocast("cpu", torch.float16):
            return nn.functional.mse_loss(nets[index](inputs), inputs.sum(1, keepdim=True) * gain)

    def take(index: int, step: int) -> None:
        optimizer = optimizers[index]
        scaler.step(optimizer)
        truth[type(optimizer).__name__].append((step, found_inf(scaler, optimizer)))

    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        if both_first:
            losses = [loss_of(index, step) for index in (0, 1)]
            scaled = [scaler.scale(loss) for loss in losses]
            for index in (0, 1):
                scaled[index].backward()
            take(0, step)
            take(1, step)
        else:
            for index in (0, 1):
                scaler.scale(loss_of(index, step)).backward()
                take(index, step)
        scaler.update()
    watch.close()
    return truth


@pytest.mark.parametrize("both_first", [True, False])
def test_skips_belong_to_the_optimizer_that_overflowed(
    both_first: bool, recorded: RecordingHost
) -> None:
    truth = two_players(recorded, both_first)
    for name, expected in truth.items():
        seen = [(r.step, bool(r.skipped)) for r in recorded.steps if r.optimizer == name]
        assert seen == expected
    one = {step for step, skipped in truth["SGD"] if skipped}
    other = {step for step, skipped in truth["Adam"] if skipped}
    assert one - other, "the first was to skip alone somewhere"
    assert other - one
    assert {fact.partition(":")[0] for fact in recorded.facts} == {"backward-origin"}
    assert {record.dtype for record in recorded.steps} == {"float16"}


def test_losses_of_two_optimizers_are_told_apart_when_they_come_in_turn(
    recorded: RecordingHost,
) -> None:
    two_players(recorded, both_first=False)
    assert {record.losses for record in recorded.steps} == {1}


def test_going_back_after_the_step_of_another_is_no_unscaled_backward(
    recorded: RecordingHost,
) -> None:
    nets = [nn.Linear(4, 1), nn.Linear(4, 1)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-3) for net in nets]
    scaler = torch.amp.GradScaler("cpu")
    ampwatch.hook(nets, optimizers, scaler)
    for _ in range(3):
        losses = [scaler.scale(net(torch.ones(2, 4)).pow(2).mean()) for net in nets]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            scaler.step(optimizer)
        scaler.update()
    assert recorded.facts == set()
    assert {record.optimizer for record in recorded.steps} == {"SGD", "SGD 2"}
    assert {record.losses for record in recorded.steps} == {1}


def test_two_scalers_each_have_their_own_scale(recorded: RecordingHost) -> None:
    nets = [nn.Linear(4, 1), nn.Linear(4, 1)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-3) for net in nets]
    ampwatch.hook(nets, optimizers)
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**power) for power in (4, 9)]
    for _ in range(3):
        norms = []
        for net, optimizer, scaler in zip(nets, optimizers, scalers, strict=True):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(2, 4)).pow(2).mean()).backward()
            norms.append(true_norm(net.parameters(), scaler.get_scale()))
            scaler.step(optimizer)
            scaler.update()
        assert [r.grad_norm for r in recorded.steps[-2:]] == pytest.approx(norms, rel=1e-6)
    assert [record.scale for record in recorded.steps] == [16.0, 512.0] * 3
    assert recorded.facts == set()


def step_once(net: nn.Module, optimizer: torch.optim.Optimizer, gain: float = 1.0) -> float:
    optimizer.zero_grad()
    loss = net(torch.ones(2, 4)).pow(2).mean() * gain
    loss.backward()
    optimizer.step()
    return loss.item()


def test_a_network_that_is_not_hooked_leaves_no_trace(recorded: RecordingHost) -> None:
    ours, other = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(ours.parameters(), lr=1e-3)
    foreign = torch.optim.SGD(other.parameters(), lr=1e-3)
    ampwatch.hook(ours, optimizer)
    step_once(other, foreign)
    expected = []
    for _ in range(3):
        expected.append(step_once(ours, optimizer))
        step_once(other, foreign, gain=1000.0)
    assert [record.loss for record in recorded.steps] == pytest.approx(expected)


def test_two_hooks_on_two_networks_keep_apart(recorded: RecordingHost) -> None:
    nets = [nn.Linear(4, 1), nn.Linear(4, 1)]
    optimizers = [
        torch.optim.SGD(nets[0].parameters(), 1e-3),
        torch.optim.Adam(nets[1].parameters()),
    ]
    watches = [ampwatch.hook(n, o) for n, o in zip(nets, optimizers, strict=True)]
    first, second = [], []
    for _ in range(3):
        first.append(step_once(nets[0], optimizers[0]))
        second.append(step_once(nets[1], optimizers[1], gain=50.0))
    for name, expected in (("SGD", first), ("Adam", second)):
        mine = [record for record in recorded.steps if record.optimizer == name]
        assert [record.loss for record in mine] == pytest.approx(expected)
        assert [record.step for record in mine] == [0, 1, 2]
    for watch in watches:
        watch.close()


def test_hooking_twice_records_each_step_once(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    first = ampwatch.hook(net, optimizer)
    ampwatch.hook(net, optimizer)
    step_once(net, optimizer)
    assert len(recorded.steps) == 1
    first.close()
    step_once(net, optimizer)
    assert len(recorded.steps) == 2


def test_a_new_optimizer_on_the_same_network_is_seen(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1)
    ampwatch.hook(net, torch.optim.SGD(net.parameters(), lr=1e-3))
    for _ in range(3):
        step_once(net, torch.optim.Adam(net.parameters()))
    assert [record.optimizer for record in recorded.steps] == ["Adam"] * 3
    assert [record.step for record in recorded.steps] == [0, 1, 2]


def test_a_layer_added_while_training_is_named_and_counted(recorded: RecordingHost) -> None:
    net: Any = nn.Sequential(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    ampwatch.hook(net, optimizer)
    step_once(net, optimizer)
    net.append(nn.Linear(4, 1))
    optimizer.add_param_group({"params": list(net[1].parameters())})
    step_once(net, optimizer)
    assert recorded.steps[1].grad_norm == pytest.approx(true_norm(net.parameters()), rel=1e-6)
    assert set(recorded.infos[-1].tensors) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert recorded.infos[-1].parameters == 25


def test_a_scaler_made_anew_is_followed(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    ampwatch.hook(net, optimizer)
    for power in (3, 5):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**power)
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(2, 4)).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [record.scale for record in recorded.steps] == [8.0, 8.0, 32.0, 32.0]


def test_shared_parameters_are_counted_once(recorded: RecordingHost) -> None:
    net: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    net[1].weight = net[0].weight
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    ampwatch.hook(net, optimizer)
    step_once(net, optimizer)
    assert recorded.steps[0].grad_norm == pytest.approx(true_norm(net.parameters()), rel=1e-6)
    assert recorded.infos[-1].tensors.count("0.weight") == 1
