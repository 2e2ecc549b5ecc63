"""Unusual loops: right numbers where they are right, facts where a rule has something to say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from training_loops import Bench, RecordingHost, true_norm

import ampwatch

CPU = "cpu"


@pytest.fixture
def bench(recorded: RecordingHost) -> Bench:
    return Bench(recorded)


def test_scaled_loss_divided_for_accumulation(bench: Bench) -> None:
    losses = []
    for _ in range(4):
        loss = bench.loss()
        losses.append(loss.item())
        (bench.scaler.scale(loss) / 4).backward()
    bench.take()
    record = bench.recorded.steps[0]
    assert record.losses == 4
    assert record.loss == pytest.approx(sum(losses) / 4)
    assert bench.recorded.facts == set()


def test_sum_of_scaled_losses(bench: Bench) -> None:
    first, second = bench.loss(), bench.loss(2.0)
    (bench.scaler.scale(first) + bench.scaler.scale(second)).backward()
    bench.take()
    record = bench.recorded.steps[0]
    assert record.losses == 2
    assert record.loss == pytest.approx((first.item() + second.item()) / 2)
    assert bench.recorded.facts == set()


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_several_outputs_scaled_at_once(kind: Any, bench: Bench) -> None:
    losses = [bench.loss(), bench.loss(2.0)]
    scaled = bench.scaler.scale(kind(losses))
    torch.autograd.backward(list(scaled))
    norm = bench.norm()
    bench.take()
    record = bench.recorded.steps[0]
    assert record.losses == 2
    assert record.loss == pytest.approx(sum(loss.item() for loss in losses) / 2)
    assert record.grad_norm == pytest.approx(norm, rel=1e-6)
    assert bench.recorded.facts == set()


def test_loss_is_the_one_that_is_back_propagated_not_the_one_of_a_penalty(bench: Bench) -> None:
    loss = bench.loss()
    (gradient,) = torch.autograd.grad(
        bench.scaler.scale(loss), [next(bench.net.parameters())], create_graph=True
    )
    total = bench.loss() + (gradient / bench.scaler.get_scale()).pow(2).sum()
    bench.scaler.scale(total).backward()
    bench.take()
    record = bench.recorded.steps[0]
    assert record.losses == 1
    assert record.loss == pytest.approx(total.item())
    assert bench.recorded.facts == set()


def test_backward_of_an_unscaled_loss(bench: Bench) -> None:
    bench.scaler.scale(bench.loss()).backward()
    bench.loss().backward()
    bench.take()
    assert bench.recorded.facts == {"unscaled-backward"}


def test_backward_and_step_inside_autocast(bench: Bench) -> None:
    with torch.autocast(CPU, torch.bfloat16):
        bench.scaler.scale(bench.loss()).backward()
    bench.take()
    with torch.autocast(CPU, torch.bfloat16):
        loss = bench.loss()
    bench.scaler.scale(loss).backward()
    with torch.autocast(CPU, torch.bfloat16):
        bench.take()
    facts = [set(record.facts) for record in bench.recorded.steps]
    assert facts == [{"backward-in-autocast"}, {"step-in-autocast"}]


def test_scaled_backward_but_a_plain_step(bench: Bench) -> None:
    for _ in range(2):
        bench.scaler.scale(bench.loss()).backward()
        norm = bench.norm()
        bench.optimizer.step()
        bench.optimizer.zero_grad()
        record = bench.recorded.steps[-1]
        assert record.facts == ("step-outside-scaler",)
        assert record.grad_norm == pytest.approx(norm, rel=1e-6), "the scale is divided out"
        assert record.scale == bench.scaler.get_scale()


def test_a_plain_step_on_gradients_that_unscale_has_divided(bench: Bench) -> None:
    for step in range(4):
        bench.scaler.scale(bench.loss()).backward()
        norm = bench.norm()
        bench.scaler.unscale_(bench.optimizer)
        if step == 2:
            bench.optimizer.step()
        else:
            bench.scaler.step(bench.optimizer)
        bench.scaler.update()
        bench.optimizer.zero_grad()
        assert bench.recorded.steps[-1].grad_norm == pytest.approx(norm, rel=1e-6)
    told = [record.facts for record in bench.recorded.steps]
    assert told == [(), (), ("step-outside-scaler:unscaled=yes",), ()]


def test_a_second_phase_without_the_scaler_does_not_pass_it_by(bench: Bench) -> None:
    for _ in range(2):
        bench.scaler.scale(bench.loss()).backward()
        bench.take()
    for _ in range(2):
        bench.loss().backward()
        norm = true_norm(bench.net.parameters())
        bench.optimizer.step()
        bench.optimizer.zero_grad()
        assert bench.recorded.steps[-1].grad_norm == pytest.approx(norm, rel=1e-6)
    assert bench.recorded.facts == set()


def test_one_more_step_after_the_scalers(bench: Bench) -> None:
    bench.scaler.scale(bench.loss()).backward()
    norm = bench.norm()
    bench.scaler.step(bench.optimizer)
    bench.scaler.update()
    bench.optimizer.step()
    taken, extra = bench.recorded.steps
    assert taken.facts == ()
    assert extra.facts == ("step-outside-scaler:again=yes",)
    assert extra.step == 1
    assert extra.grad_norm == pytest.approx(norm, rel=1e-6), "these were unscaled already"


def test_another_network_trained_without_the_scaler_is_no_fact(recorded: RecordingHost) -> None:
    scaled, plain = nn.Linear(4, 1), nn.Linear(4, 1)
    one = torch.optim.SGD(scaled.parameters(), 1e-3)
    two = torch.optim.Adam(plain.parameters())
    scaler = torch.amp.GradScaler(CPU)
    ampwatch.hook([scaled, plain], [one, two], scaler)
    for _ in range(3):
        one.zero_grad()
        two.zero_grad()
        scaler.scale(scaled(torch.ones(2, 4)).mean()).backward()
        scaler.step(one)
        scaler.update()
        plain(torch.ones(2, 4)).mean().backward()
        norm = true_norm(plain.parameters())
        two.step()
        assert recorded.steps[-1].grad_norm == pytest.approx(norm, rel=1e-6)
        assert "step-outside-scaler" not in recorded.steps[-1].facts


def test_gradients_thrown_away_after_unscale_are_not_those_of_the_next_step(bench: Bench) -> None:
    bench.scaler.scale(bench.loss(10.0)).backward()
    bench.scaler.unscale_(bench.optimizer)
    bench.scaler.update()  # the loop decided not to step
    bench.optimizer.zero_grad()
    bench.scaler.scale(bench.loss()).backward()
    norm = bench.norm()
    bench.take()
    assert len(bench.recorded.steps) == 1
    assert bench.recorded.steps[0].step == 0
    assert bench.recorded.steps[0].grad_norm == pytest.approx(norm, rel=1e-6)


def test_fp16_parameters_give_one_record_and_torchs_own_error(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1).half()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(CPU, init_scale=4.0)
    ampwatch.hook(net, optimizer, scaler)
    scaler.scale(net(torch.ones(2, 4).half()).float().mean()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)
    (record,) = recorded.steps
    assert set(record.facts) == {"fp16-gradients", "step-refused"}
    assert record.skipped is None
    assert record.grad_norm == pytest.approx(true_norm(net.parameters(), 4.0), rel=1e-6)


def test_fp16_parameters_at_an_explicit_unscale(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1).half()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(CPU, init_scale=4.0)
    ampwatch.hook(net, optimizer, scaler)
    scaler.scale(net(torch.ones(2, 4).half()).float().mean()).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(optimizer)
    assert set(recorded.steps[0].facts) == {"fp16-gradients", "step-refused"}


@pytest.mark.parametrize("scaler", [None, torch.amp.GradScaler(CPU, enabled=False)])
@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        (torch.float16, {"fp16-gradients"}),
        (torch.bfloat16, set()),
        (torch.float32, set()),
    ],
)
def test_gradients_in_float16_that_no_scaler_lifts(
    dtype: torch.dtype, told: set[str], scaler: Any, recorded: RecordingHost
) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    ampwatch.hook(net, optimizer, scaler)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 4, dtype=dtype)).float().mean().backward()
        optimizer.step() if scaler is None else scaler.step(optimizer)
    assert len(recorded.steps) == 3
    assert [set(record.facts) for record in recorded.steps] == [told] * 3


def test_float16_gradients_of_a_fused_optimizer_that_its_scaler_lifts(
    recorded: RecordingHost,
) -> None:
    net = nn.Linear(4, 1).half()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler(CPU, init_scale=4.0)
    ampwatch.hook(net, optimizer, scaler)
    scaler.scale(net(torch.ones(2, 4).half()).float().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert len(recorded.steps) == 1
    assert recorded.facts == set()


def test_scaler_without_any_gradient(bench: Bench) -> None:
    bench.scaler.scale(bench.loss())
    with pytest.raises(AssertionError, match="No inf checks"):
        bench.scaler.step(bench.optimizer)
    assert "no-gradients" in bench.recorded.facts


def test_step_twice_without_update_raises_as_ever(bench: Bench) -> None:
    bench.scaler.scale(bench.loss()).backward()
    bench.scaler.step(bench.optimizer)
    with pytest.raises(RuntimeError, match="step\\(\\) has already been called"):
        bench.scaler.step(bench.optimizer)
    assert len(bench.recorded.steps) == 1
    assert bench.recorded.notices == []
