"""The same promises on a CUDA device. Run alone with: pytest -m gpu"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from training_loops import RecordingHost, assert_same_weights, found_inf, true_norm

import ampwatch
from ampwatch.controls import Request
from ampwatch.record import StepAnatomy
from ampwatch.record.facts import split_fact

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

STEPS = 40


def run(
    hooked: bool, fused: bool, clip: bool, dtype: torch.dtype = torch.float16
) -> tuple[dict[str, torch.Tensor], list[int], list[float]]:
    """Weights, skipped steps and true gradient norms of a loop that looks for itself."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=fused)
    scaler = torch.amp.GradScaler("cuda", growth_interval=7)
    watch = ampwatch.hook(net, optimizer, scaler) if hooked else None
    skips: list[int] = []
    norms: list[float] = []
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs = torch.randn(32, 16, device="cuda")
        targets = inputs.sum(1, keepdim=True) * (1.0 if step % 5 else 300.0)
        with torch.autocast("cuda", dtype):
            loss = nn.functional.mse_loss(net(inputs), targets)
        scaler.scale(loss).backward()
        norms.append(true_norm(net.parameters(), scaler.get_scale()))
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        if found_inf(scaler, optimizer):
            skips.append(step)
        scaler.update()
    if watch is not None:
        watch.close()
    return {name: value.cpu() for name, value in net.state_dict().items()}, skips, norms


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_skips_norms_and_weights_are_those_of_the_loop(
    fused: bool, clip: bool, recorded: RecordingHost
) -> None:
    plain, skips, norms = run(False, fused, clip)
    hooked, hooked_skips, _ = run(True, fused, clip)
    assert_same_weights(plain, hooked)
    assert skips
    assert recorded.skips == skips == hooked_skips
    assert [record.step for record in recorded.steps] == list(range(STEPS))
    assert recorded.notices == []
    for step, record in enumerate(recorded.steps):
        if step in skips:
            assert record.nonfinite_tensors
        elif math.isfinite(norms[step]):
            assert record.grad_norm == pytest.approx(norms[step], rel=1e-5)
            if clip:
                assert record.clipped_norm == pytest.approx(min(norms[step], 0.5), rel=1e-4)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Any wait for the device raises; to be entered once everything has run a few times."""
    yield
    torch.cuda.set_sync_debug_mode("default")


def test_no_step_waits_for_the_device(recorded: RecordingHost, no_waiting: None) -> None:
    net = nn.Linear(16, 16).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    watch = ampwatch.hook(net, optimizer, scaler)
    inputs = torch.randn(8, 16, device="cuda")

    def take() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = net(inputs).float().pow(2).mean()
        scaler.scale(loss).backward()
        watch.log(accuracy=loss)
        scaler.step(optimizer)
        scaler.update()

    for _ in range(3):
        take()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(30):
        take()
    torch.cuda.set_sync_debug_mode("default")
    watch.close()
    assert recorded.notices == [], "a wait of ours would have raised, and have been told"
    assert len(recorded.steps) == 33
    assert all("accuracy" in record.metrics for record in recorded.steps[1:])


def test_where_inf_in_a_loss_came_from_is_told_without_waiting(
    recorded: RecordingHost, no_waiting: None
) -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    watch = ampwatch.hook(net, optimizer, scaler)
    inputs = torch.randn(8, 16, device="cuda")

    def take(gain: float) -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = (net[2](net[1](net[0](inputs)) * gain)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    for step in range(6):
        take(1.0 if step < 3 else 1e6)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(20):
        take(1e6)
    torch.cuda.set_sync_debug_mode("default")
    watch.close()
    assert recorded.notices == [], "a wait of ours would have raised, and have been told"
    facts = [split_fact(each) for record in recorded.steps for each in record.facts]
    causes = [details for name, details in facts if name == "forward-overflow"]
    assert causes
    assert {details["after"] for details in causes} == {"0"}


def test_a_batch_with_nan_is_named_where_the_scaler_has_waited(recorded: RecordingHost) -> None:
    net = nn.Linear(16, 1).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    watch = ampwatch.hook(net, optimizer, scaler)
    for step in range(12):
        inputs = torch.randn(8, 16, device="cuda")
        if step == 7:
            inputs[0, 0] = math.nan
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = net(inputs).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    watch.close()
    assert recorded.skips == [7]
    found = [split_fact(each) for each in recorded.steps[7].facts]
    assert ("nonfinite-input", {"kind": "NaN", "name": "inputs"}) in found


@pytest.mark.parametrize("size", [1, 1000, 10**6, 10**7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_norm_equals_float64(size: int, dtype: torch.dtype, recorded: RecordingHost) -> None:
    weight: Any = nn.Parameter(torch.zeros(size, device="cuda", dtype=dtype))
    weight.grad = torch.randn(size, device="cuda").to(dtype)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    watch = ampwatch.hook(None, optimizer)
    optimizer.step()
    watch.close()
    expected = float(weight.grad.double().norm())
    assert recorded.steps[0].grad_norm == pytest.approx(expected, rel=1e-6)


def test_finite_values_whose_float32_squares_overflow(recorded: RecordingHost) -> None:
    weight: Any = nn.Parameter(torch.zeros(2, device="cuda"))
    weight.grad = torch.tensor([3e30, 4e30], device="cuda")
    optimizer = torch.optim.SGD([weight], lr=0.0)
    watch = ampwatch.hook(None, optimizer)
    optimizer.step()
    watch.close()
    assert recorded.steps[0].grad_norm == pytest.approx(5e30, rel=1e-6)
    assert recorded.steps[0].nonfinite_tensors == 0


@pytest.mark.parametrize("fused", [False, True])
def test_taking_every_step_apart_changes_no_bit(
    fused: bool, recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, skips, _ = run(False, fused, clip=False)
    boundary = recorded.boundary

    def asking(turn: Any, *more: Any) -> None:
        turn(Request("explain"))
        boundary(turn, *more)

    monkeypatch.setattr(recorded, "boundary", asking)
    hooked, _, norms = run(True, fused, clip=False)
    assert_same_weights(plain, hooked)
    told = [record for record in recorded.records if isinstance(record, StepAnatomy)]
    assert [anatomy.step for anatomy in told] == list(range(1, STEPS))
    assert [anatomy.step for anatomy in told if not anatomy.stepped] == [s for s in skips if s]
    for anatomy in told:
        assert [each.output for each in anatomy.operations[:3]] == ["float16"] * 3
        assert anatomy.operations[0].gradient == "float16"
        followed, scale = anatomy.followed, anatomy.scale
        assert followed is not None
        assert scale is not None
        assert (followed.before == followed.after) is not anatomy.stepped
        if anatomy.stepped:
            assert followed.unscaled == tuple(value / scale for value in followed.scaled)
            largest = anatomy.gradient_largest
            assert largest is not None
            assert largest / scale <= norms[anatomy.step] * (1 + 1e-5)
