"""Loops with closures, schedulers, checkpointing or a framework around them: right numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from training_loops import Bench, RecordingHost, true_norm

import ampwatch

CPU = "cpu"


@pytest.fixture
def bench(recorded: RecordingHost) -> Bench:
    return Bench(recorded)


def test_gradients_without_a_backward_pass(bench: Bench) -> None:
    loss = bench.loss()
    parameters = list(bench.net.parameters())
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(bench.scaler.scale(loss), parameters), strict=True
    ):
        parameter.grad = gradient
    norm = bench.norm()
    bench.take()
    record = bench.recorded.steps[0]
    assert record.loss == pytest.approx(loss.item())
    assert record.grad_norm == pytest.approx(norm, rel=1e-6)


def test_going_back_twice_through_a_kept_graph(bench: Bench) -> None:
    loss = bench.loss()
    scaled = bench.scaler.scale(loss)
    scaled.backward(retain_graph=True)
    scaled.backward()
    norm = bench.norm()
    bench.take()
    assert bench.recorded.steps[0].loss == pytest.approx(loss.item())
    assert bench.recorded.steps[0].grad_norm == pytest.approx(norm, rel=1e-6)
    assert bench.recorded.facts == set()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_counts_a_loss_once(reentrant: bool, bench: Bench) -> None:
    inputs = torch.ones(3, 4, requires_grad=True)
    for _ in range(2):
        with torch.autocast(CPU, torch.bfloat16):
            hidden = checkpoint(bench.net[0], inputs, use_reentrant=reentrant)
            loss = bench.net[2](bench.net[1](hidden)).float().pow(2).mean()
        bench.scaler.scale(loss).backward()
        norm = bench.norm()
        bench.take()
        record = bench.recorded.steps[-1]
        assert record.losses == 1
        assert record.loss == pytest.approx(loss.item())
        assert record.grad_norm == pytest.approx(norm, rel=1e-6)
        assert record.dtype == "bfloat16"
    assert bench.recorded.facts == set()
    assert len(bench.recorded.steps) == 2


def test_state_loaded_before_and_while_training(recorded: RecordingHost) -> None:
    bench = Bench(recorded)
    state = {**bench.scaler.state_dict(), "scale": 256.0, "_growth_tracker": 5}
    bench.scaler.load_state_dict(state)
    scales = []
    for step in range(4):
        if step == 2:
            bench.scaler.load_state_dict({**state, "scale": 8.0, "_growth_tracker": 1})
        bench.scaler.scale(bench.loss()).backward()
        scales.append(bench.scaler.get_scale())
        bench.take()
    assert [record.scale for record in recorded.steps] == scales == [256.0, 256.0, 8.0, 8.0]
    assert [record.growth_tracker for record in recorded.steps] == [5, 6, 1, 2]
    assert recorded.skips == []


def test_scale_set_by_the_loop(bench: Bench) -> None:
    for new in (64.0, torch.tensor(2.0), 32.0):
        bench.scaler.scale(bench.loss()).backward()
        bench.scaler.step(bench.optimizer)
        bench.scaler.update(new)
        bench.optimizer.zero_grad()
    assert [record.scale for record in bench.recorded.steps] == [65536.0, 64.0, 2.0]
    assert bench.recorded.skips == []


def test_nan_in_the_loss_from_the_first_step(bench: Bench) -> None:
    for _ in range(5):
        bench.scaler.scale(bench.loss(float("nan"))).backward()
        bench.take()
    assert bench.recorded.skips == [0, 1, 2, 3, 4]
    assert all(record.loss != record.loss for record in bench.recorded.steps)
    assert {record.origin for record in bench.recorded.steps} == {"2.bias"} or {
        record.origin for record in bench.recorded.steps
    } == {"2.weight"}


def test_lbfgs_with_its_closure(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
    ampwatch.hook(net, optimizer)
    evaluations = 0

    def closure() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4)).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
        assert recorded.steps[-1].grad_norm == pytest.approx(true_norm(net.parameters()), rel=1e-6)
    assert [record.step for record in recorded.steps] == [0, 1]
    assert sum(record.losses or 0 for record in recorded.steps) == evaluations
    assert recorded.facts == set()


def test_sgd_with_a_closure_by_position(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    ampwatch.hook(net, optimizer)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4)).pow(2).mean()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    assert isinstance(loss, Tensor)
    assert recorded.steps[0].loss == pytest.approx(loss.item())
    assert recorded.steps[0].grad_norm == pytest.approx(true_norm(net.parameters()), rel=1e-6)


def test_learning_rate_of_a_scheduler(bench: Bench) -> None:
    scheduler = torch.optim.lr_scheduler.ExponentialLR(bench.optimizer, 0.5)
    for _ in range(3):
        bench.scaler.scale(bench.loss()).backward()
        bench.take()
        scheduler.step()
    assert [record.lr for record in bench.recorded.steps] == pytest.approx([1e-3, 5e-4, 2.5e-4])


def test_origin_is_the_parameter_nearest_the_loss(bench: Bench) -> None:
    bench.scaler.scale(bench.loss()).backward()
    bench.take()
    bench.scaler.scale(bench.loss()).backward()
    first, middle = bench.net[0].weight.grad, bench.net[2].weight.grad
    assert first is not None
    assert middle is not None
    first[0, 0] = float("inf")
    middle[0, 0] = float("nan")
    bench.take()
    record = bench.recorded.steps[1]
    assert record.skipped
    assert record.origin == "2.weight"
    assert (record.nonfinite_tensors, record.nonfinite_values) == (2, 2)


class Wrapper(torch.optim.Optimizer):
    """As accelerate does it: shares the groups of an inner optimizer, puts its own step in."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.defaults = inner.defaults
        self.called = 0
        original = inner.step

        def step(*args: Any, **kwargs: Any) -> Any:
            self.called += 1
            return original(*args, **kwargs)

        inner.step = step  # type: ignore[method-assign]

    def step(self, scaler: Any) -> None:  # type: ignore[override]
        scaler.step(self.inner)


def test_a_framework_that_steps_an_inner_optimizer(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1)
    wrapper = Wrapper(torch.optim.SGD(net.parameters(), lr=1e-3))
    scaler = torch.amp.GradScaler(CPU, init_scale=2.0)
    ampwatch.hook(net, wrapper, scaler)
    for gain in (1.0, float("inf"), 1.0):
        wrapper.inner.zero_grad()
        scaler.scale(net(torch.ones(2, 4)).pow(2).mean() * gain).backward()
        wrapper.step(scaler)
        scaler.update()
    assert recorded.skips == [1]
    assert len(recorded.steps) == 3
    assert wrapper.called == 2
