"""Real loops on the CPU, each with one mistake and its near miss, through the automatic hook."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training_loops import RecordingHost

import ampwatch
from ampwatch.rules import RULES
from ampwatch.run import Run

F = nn.functional
Loss = Callable[[nn.Module, Tensor, int], Tensor]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def hooked(recorded: RecordingHost) -> RecordingHost:
    ampwatch.hook()
    return recorded


def found(recorded: RecordingHost, least: str = "warning") -> set[str]:
    """Rules that found something of that severity or worse."""
    run = Run()
    for record in recorded.records:
        run.add(record)
    severities = ("error", "warning", "info")
    worst = severities[: severities.index(least) + 1]
    return {f.rule for rule in RULES for f in rule.check(run) if f.severity in worst}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))


def mean_loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
    return F.mse_loss(model(x).float(), x.mean(1, keepdim=True))


def train(loss: Loss = mean_loss, steps: int = 50, model: nn.Module | None = None, **scaler: Any):  # type: ignore[no-untyped-def]
    model = network() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaling = torch.amp.GradScaler("cpu", **{"init_scale": 1024.0, **scaler})
    for step in range(steps):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            value = loss(model, x, step)
        scaling.scale(value).backward()
        scaling.step(optimizer)
        scaling.update()
    return model, optimizer, scaling


def test_a_loop_without_a_mistake_has_no_finding(hooked: RecordingHost) -> None:
    train(steps=80)
    assert found(hooked, "info") == set()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_bad_values_in_a_batch(bad: float, hooked: RecordingHost) -> None:
    def loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
        if step == 20:
            x[3, 2] = bad
        return mean_loss(model, x, step)

    train(loss)
    if bad == -float("inf"):
        assert "nonfinite-input" in found(hooked) or hooked.skips  # may be taken for a mask
    else:
        assert found(hooked) == {"nonfinite-input"}


def test_bad_values_in_the_targets(hooked: RecordingHost) -> None:
    def loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
        y = x.mean(1, keepdim=True)
        y[0] = float("nan") if step in (10, 30) else 0.0
        return F.mse_loss(model(x).float(), y)

    train(loss)
    assert found(hooked) == {"nonfinite-input"}


def test_a_batch_too_large_for_float16_is_no_bad_batch(hooked: RecordingHost) -> None:
    train(lambda model, x, step: mean_loss(model, x * (1e6 if step == 20 else 1.0), step))
    assert found(hooked) == {"forward-overflow"}


def test_normalising_a_zero_vector_in_float16(hooked: RecordingHost) -> None:
    def loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
        h = model[1](model[0](x)) * (0.0 if step == 20 else 1.0)
        return (model[2](F.normalize(h, dim=-1)).float() - 1).pow(2).mean()

    train(loss)
    assert found(hooked) == {"epsilon-underflow"}


def test_log_of_zero_behind_a_guard_that_is_zero(hooked: RecordingHost) -> None:
    def loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
        p = torch.relu(model(x)) + (1.0 if step < 20 else 0.0)
        return -torch.log(p + 1e-8).mean().float()

    train(loss, steps=24)
    assert "epsilon-underflow" in found(hooked)


def test_log_of_a_negative_number_is_mathematics(hooked: RecordingHost) -> None:
    def loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
        return torch.log(model(x).float() + (-100.0 if step == 20 else 100.0)).pow(2).mean()

    train(loss)
    assert found(hooked) == {"nan-not-overflow"}


def test_nan_gradients_beside_a_finite_loss_at_any_scale(hooked: RecordingHost) -> None:
    def loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
        h = model[0](x).float()
        return mean_loss(model, x, step) + (h - h.detach()).pow(2).sum(1).sqrt().mean()

    train(loss, steps=40)
    assert found(hooked) == {"nan-not-overflow", "scale-collapse"}


def test_nothing_is_unpacked_under_activation_checkpointing(hooked: RecordingHost) -> None:
    from torch.utils.checkpoint import checkpoint

    def loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
        h = checkpoint(model[:2], x, use_reentrant=False)
        value = F.mse_loss(model[2](h).float(), x.mean(1, keepdim=True))
        return value * (float("nan") if step == 20 else 1.0)

    train(loss)
    assert hooked.skips == [20]
    assert hooked.notices == []


def test_a_scaler_for_a_device_that_is_not_there(hooked: RecordingHost) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with pytest.warns(UserWarning, match="not available"):
        scaler = torch.amp.GradScaler("cuda")
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(mean_loss(model, torch.randn(4, 16), 0)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert found(hooked) == {"scaler-disabled"}


def test_a_scaler_switched_off_on_purpose_is_no_mistake(hooked: RecordingHost) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(mean_loss(model, torch.randn(4, 16), 0)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert found(hooked) == set()


def test_old_names_are_told(hooked: RecordingHost) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with pytest.warns(FutureWarning):
        scaler = torch.cpu.amp.GradScaler()
    scaler.scale(mean_loss(model, torch.randn(4, 16), 0)).backward()
    scaler.step(optimizer)
    assert found(hooked, "info") == {"deprecated-amp-api"}


@pytest.mark.parametrize("restored", [False, True])
def test_a_scaler_whose_state_was_not_restored(restored: bool, hooked: RecordingHost) -> None:
    def steps(model: nn.Module, optimizer: Any, scaler: Any) -> None:
        for _ in range(10):
            optimizer.zero_grad()
            scaler.scale(mean_loss(model, torch.randn(4, 16), 0)).backward()
            scaler.step(optimizer)
            scaler.update()

    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    steps(model, optimizer, scaler)
    later = copy.deepcopy(model)
    again = torch.optim.Adam(later.parameters())
    again.load_state_dict(optimizer.state_dict())
    fresh = torch.amp.GradScaler("cpu", init_scale=64.0)
    if restored:
        fresh.load_state_dict(scaler.state_dict())
    steps(later, again, fresh)
    assert found(hooked) == (set() if restored else {"scaler-state-not-restored"})


@pytest.mark.parametrize("between", [False, True])
def test_an_update_between_two_optimizers(between: bool, hooked: RecordingHost) -> None:
    first, second = nn.Linear(16, 1), nn.Linear(16, 1)
    one = torch.optim.SGD(first.parameters(), 1e-3)
    two = torch.optim.SGD(second.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=60)
    for step in range(40):
        x = torch.randn(8, 16)
        one.zero_grad()
        two.zero_grad()
        scaler.scale(first(x).pow(2).mean() * (1e30 if step == 20 else 1.0) ** 2).backward()
        if not between:  # a whole round for each is right
            scaler.step(one)
            scaler.update()
        scaler.scale(second(x).pow(2).mean()).backward()
        if between:
            scaler.step(one)
            scaler.update()
        scaler.step(two)
        scaler.update()
    assert ("scaler-call-order" in found(hooked)) == between


@pytest.mark.parametrize("early", [False, True])
def test_unscale_in_the_middle_of_accumulation(early: bool, hooked: RecordingHost) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for _ in range(5):
        optimizer.zero_grad()
        for part in range(3):
            scaler.scale(mean_loss(model, torch.randn(4, 16), 0) / 3).backward()
            if part == (0 if early else 2):
                scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert found(hooked) == ({"scaler-call-order"} if early else set())


def test_gradients_of_the_inputs_from_an_unscaled_loss_are_no_mistake(
    hooked: RecordingHost,
) -> None:
    def loss(model: nn.Module, x: Tensor, step: int) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            probe = x.clone().requires_grad_()
            mean_loss(model, probe, step).backward()
            model.zero_grad()
        return mean_loss(model, x + 0.1 * probe.grad.sign(), step)

    train(loss)
    assert "unscaled-backward" not in found(hooked)


def test_a_parameter_without_part_in_the_loss(hooked: RecordingHost) -> None:
    model = network()
    model.extra = nn.Linear(4, 4)
    model.forward = lambda x: model[2](model[1](model[0](x)))  # type: ignore[method-assign]
    train(steps=50, model=model)
    assert found(hooked) == {"dead-gradients"}


def test_a_frozen_layer_is_no_mistake(hooked: RecordingHost) -> None:
    model = network()
    model[0].requires_grad_(False)
    train(steps=50, model=model)
    assert found(hooked) == set()


def test_a_new_scaler_in_every_epoch_and_one_for_all(hooked: RecordingHost) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(mean_loss(model, torch.randn(4, 16), 0)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert found(hooked) == {"scaler-recreated"}
