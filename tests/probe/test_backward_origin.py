"""Where in backward inf and NaN begin: the operation and module, and an overflow told from NaN."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training_loops import RecordingHost, assert_same_weights, recording

import ampwatch
from ampwatch import trouble as trouble_module
from ampwatch.probe import search_plan as search_plan_module
from ampwatch.probe.search_plan import MOST_FOUND
from ampwatch.record.facts import split_fact

Loss = Callable[[nn.Module, Tensor], Tensor]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(inputs))
        return result


def length_of_nothing(net: nn.Module, inputs: Tensor) -> Tensor:
    """sqrt has an infinite slope at 0."""
    hidden = net.body(inputs).float()  # type: ignore[operator]
    return net.head(hidden).float().mean() + (hidden * 0).abs().sqrt().mean()  # type: ignore[operator]


def zero_times_inf(net: nn.Module, inputs: Tensor) -> Tensor:
    """The branch that `where` does not take sends 0 back, into exp of a large number."""
    out = net(inputs).float()
    return torch.where(
        out > 1e9, torch.exp(out.abs() * 0 + 200), out * 0 + torch.exp(out * 0)
    ).sum()


def too_large(net: nn.Module, inputs: Tensor) -> Tensor:
    """Beyond float16 only because of the scale: the gradient of each output is 1."""
    return net(inputs).float().sum()


def in_half(net: nn.Module, inputs: Tensor) -> Tensor:
    """The scale itself, 65536, is inf in float16."""
    return net(inputs).mean()


def train(
    host: RecordingHost, loss_of: Loss, steps: int = 4, scale: float = 2.0**17, **hook: Any
) -> Net:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    with ampwatch.hook(net, optimizer, scaler):
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = loss_of(net, torch.rand(3, 4))
            assert torch.isfinite(loss)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return net


def origins(host: RecordingHost) -> dict[int, dict[str, str]]:
    """Details of the fact by step."""
    found = {}
    for record in host.steps:
        for each in record.facts:
            name, details = split_fact(each)
            if name == "backward-origin":
                found[record.step] = details
    return found


def test_a_root_at_zero_is_named_at_the_second_occurrence(recorded: RecordingHost) -> None:
    train(recorded, length_of_nothing)
    assert recorded.skips[:2] == [0, 1]
    found = origins(recorded)
    assert min(found) == 1, "the first skip arms the search, the next one is explained"
    details = found[1]
    assert details["operation"] == "SqrtBackward0"
    assert (details["module"], details["place"]) == ("body.2", "after")
    assert (details["kind"], details["values"]) == ("nan", "inf")
    # The mean over 3 x 8 values of what the scale of the second step, 2^16, sends in.
    assert float(details["largest"]) == pytest.approx(2.0**16 / 24, rel=1e-2)


def test_an_overflow_is_told_from_mathematics_and_names_its_module(recorded: RecordingHost) -> None:
    train(recorded, too_large, scale=2.0**18)
    assert recorded.skips[:3] == [0, 1, 2]
    details = origins(recorded)[1]
    # Ones times 2^17 are finite in float32, and inf in the float16 of the head's output.
    assert details["operation"] == "ToCopyBackward0"
    assert (details["module"], details["place"]) == ("head", "after")
    assert (details["kind"], details["values"]) == ("overflow", "inf")
    assert float(details["largest"]) == pytest.approx(2.0**17, rel=1e-2)
    assert details["dtype"] == "float16"


def test_a_scale_beyond_float16_overflows_where_it_is_multiplied(recorded: RecordingHost) -> None:
    train(recorded, in_half)
    details = origins(recorded)[1]
    assert (details["operation"], details["kind"]) == ("MulBackward0", "overflow")
    assert float(details["largest"]) == 1.0


def test_a_product_inside_a_module_is_its_own(recorded: RecordingHost) -> None:
    def loss_of(net: nn.Module, inputs: Tensor) -> Tensor:
        # What comes in is 2^14 or less; the weights' gradient is that times the inputs.
        return net.body[0](inputs * 1e3).float().sum()  # type: ignore[index, operator]

    train(recorded, loss_of, scale=2.0**14)
    details = origins(recorded)[1]
    assert (details["operation"], details["module"]) == ("AddmmBackward0", "body.0")
    assert "place" not in details
    assert details["kind"] == "overflow"
    assert float(details["largest"]) == pytest.approx(2.0**13, rel=1e-2)


def test_finite_gradients_that_overflow_in_their_sum(recorded: RecordingHost) -> None:
    def loss_of(net: nn.Module, inputs: Tensor) -> Tensor:
        out = net(inputs)
        return (out * 4e4).float().sum() + (out * 4e4).float().sum()

    train(recorded, loss_of, scale=2.0)
    details = origins(recorded)[1]
    assert details["operation"] == "the sum that AddmmBackward0 gets"
    assert (details["module"], details["kind"]) == ("head", "overflow")


def test_nan_from_zero_times_inf(recorded: RecordingHost) -> None:
    train(recorded, zero_times_inf, scale=1.0)
    details = origins(recorded)[1]
    assert (details["operation"], details["kind"], details["values"]) == (
        "ExpBackward0",
        "nan",
        "NaN",
    )


def test_a_loss_that_is_not_finite_is_left_to_the_search_of_the_forward_pass(
    recorded: RecordingHost,
) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu")
    with ampwatch.hook(net, optimizer, scaler):
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(net(torch.full((2, 4), float("inf"))).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert origins(recorded) == {}
    assert len(recorded.skips) == 4


def test_without_a_scaler_gradients_that_are_not_finite_are_searched_too(
    recorded: RecordingHost,
) -> None:
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    with ampwatch.hook(None, optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            weight.abs().sqrt().sum().backward()
            optimizer.step()
            weight.data.zero_()
    assert origins(recorded)[1]["operation"] == "SqrtBackward0"


def test_it_goes_on_longer_after_each_skip_that_it_has_not_explained(
    recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ampwatch.probe.steps.StepReader.affords", lambda *_: True)
    searched: list[int] = []
    original = trouble_module.OriginSearch.arm
    step = 0

    def arm(self: Any, roots: list[Tensor]) -> None:
        searched.append(step)
        original(self, roots)

    monkeypatch.setattr(trouble_module.OriginSearch, "arm", arm)
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    with ampwatch.hook(None, optimizer, scaler):
        for step in range(24):
            optimizer.zero_grad()
            scaler.scale((weight * (0.0 if step % 8 == 0 else 1.0)).sqrt().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert recorded.skips == [0, 8, 16]
    assert searched == [1, 9, 10, 17, 18, 19, 20]


@pytest.mark.parametrize(
    ("epsilon", "dtype", "told"),
    [
        (1e-8, torch.float16, "yes"),  # below 2^-25: 0 in float16
        (None, torch.float16, None),
        (1e-8, torch.float32, None),  # sqrt'(1e-8) is 5e3, and finite
        (1e-3, torch.float16, None),
    ],
)
@pytest.mark.parametrize("place", ["added", "limit"])
def test_a_root_whose_guard_is_lost_in_float16(
    place: str, epsilon: float | None, dtype: torch.dtype, told: str | None, recorded: RecordingHost
) -> None:
    def loss_of(net: nn.Module, inputs: Tensor) -> Tensor:
        length = (net(inputs) * 0).square().sum(1).to(dtype)
        if epsilon is not None:
            length = length + epsilon if place == "added" else length.clamp(min=epsilon)
        return length.sqrt().float().mean()

    train(recorded, loss_of, scale=16.0)
    if place == "limit" and told is not None:
        probe = torch.zeros(1, dtype=dtype, requires_grad=True)
        probe.clamp(min=epsilon).sqrt().backward()
        if bool(torch.isfinite(probe.grad)):  # since torch 2.14, where the limit itself is 0
            told = None
    if epsilon is not None and told is None:
        assert recorded.skips == []
        return
    details = origins(recorded)[1]
    assert (details["operation"], details["kind"]) == ("SqrtBackward0", "nan")
    wanted = "1e-08" if told is not None and place == "limit" else told
    assert details.get("epsilon") == wanted


@pytest.mark.parametrize("kind", ["every fourth", "by chance"])
def test_a_root_at_zero_now_and_then_is_found_without_any_budget(
    kind: str, recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_plan_module, "FREE_SECONDS", 60.0)
    choice = torch.Generator().manual_seed(5)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    bad = []
    with ampwatch.hook(net, optimizer, scaler, budget=0.0):
        for step in range(80):
            chance = float(torch.rand((), generator=choice)) < 0.12
            bad += [step] * (step % 4 == 0 if kind == "every fourth" else chance)
            optimizer.zero_grad()
            hidden = net.body(torch.rand(3, 4)).square().sum(1)
            scaler.scale((hidden * (step not in bad) + (step not in bad)).sqrt().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert recorded.skips == bad
    found = origins(recorded)
    assert found, "nothing was told"
    assert found.keys() <= set(bad)
    assert {each["operation"] for each in found.values()} == {"SqrtBackward0"}


def test_the_search_ends_and_is_taken_up_when_all_was_well_for_long(
    recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble_module, "RESTED_STEPS", 10)
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu")
    with ampwatch.hook(None, optimizer, scaler):
        for step in range(60):
            optimizer.zero_grad()
            scaler.scale((weight * (1.0 if 30 <= step < 50 else 0.0)).sqrt().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    found = list(origins(recorded))
    assert found[:MOST_FOUND] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert found[MOST_FOUND:] == [51, 53, 55, 57, 59]


def test_not_a_bit_changes_while_backward_is_searched() -> None:
    def run(watched: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=2)
        watch = ampwatch.hook(net, optimizer, scaler) if watched else contextlib.nullcontext()
        with recording(), watch:
            for _ in range(40):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.float16):
                    loss = net(torch.rand(6, 4)).square().mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        return {**net.state_dict(), "scale": torch.tensor(scaler.get_scale())}

    plain = run(watched=False)
    assert plain["scale"] < 2.0**20
    assert_same_weights(plain, run(watched=True))


def test_of_two_optimizers_the_one_that_overflowed_is_told(recorded: RecordingHost) -> None:
    sound, sick = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = [
        torch.optim.SGD(sound.parameters(), lr=0.0),
        torch.optim.Adam(sick.parameters(), lr=0.0),
    ]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with ampwatch.hook([sound, sick], optimizers, scaler):
        for _ in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            scaler.scale(sound(torch.ones(2, 2)).sum()).backward()
            scaler.scale((sick(torch.ones(2, 2)) * 0).abs().sqrt().sum()).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
    told = {r.optimizer for r in recorded.steps if any("backward-origin" in f for f in r.facts)}
    assert told == {"Adam"}
