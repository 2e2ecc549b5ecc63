"""Activation gradients: what is recorded of them against hooks on tensors and torch in float64."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_exponents import by_hand
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from training_loops import RecordingHost, assert_same_weights, recording

import ampwatch
from ampwatch.probe.exponents import together
from ampwatch.record import ActivationStats, Exponents

SCALE = 2.0**10


class Net(nn.Module):
    """A residual block with a softmax in it; ``seen`` gets the gradient of each module's output."""

    def __init__(self, listen: bool = False) -> None:
        super().__init__()
        self.enter = nn.Linear(8, 16)
        self.block = nn.ModuleDict({"attn": nn.Linear(16, 16), "norm": nn.LayerNorm(16)})
        self.head = nn.Linear(16, 1)
        self.listen = listen
        self.seen: dict[str, list[Tensor]] = {}

    def _pass(self, name: str, module: nn.Module, inputs: Tensor) -> Tensor:
        output: Tensor = module(inputs)
        if self.listen and output.requires_grad:
            output.register_hook(
                lambda gradient: self.seen.setdefault(name, []).append(gradient.clone())
            )
        return output

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self._pass("enter", self.enter, inputs).relu()
        scores = self._pass("block.attn", self.block["attn"], hidden).softmax(-1)
        mixed = self._pass("block.norm", self.block["norm"], hidden + scores * hidden)
        return self._pass("head", self.head, mixed)


def take(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    dtype: torch.dtype = torch.float16,
    wrap: Callable[[Any], Any] = lambda model: model,
) -> None:
    optimizer.zero_grad()
    inputs = torch.randn(12, 8)
    with torch.autocast("cpu", dtype):
        loss = nn.functional.mse_loss(wrap(net)(inputs).float(), inputs.mean(1, keepdim=True))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def parts(
    net: nn.Module, scale: float = SCALE
) -> tuple[nn.Module, torch.optim.Optimizer, torch.amp.GradScaler]:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    return net, optimizer, torch.amp.GradScaler("cpu", init_scale=scale)


def flows(host: RecordingHost) -> list[ActivationStats]:
    return [record for record in host.records if isinstance(record, ActivationStats)]


def outputs(stats: ActivationStats) -> dict[str, int]:
    """Where the row of each module's output is."""
    return {
        name: place
        for place, (name, after) in enumerate(zip(stats.name, stats.after, strict=True))
        if not after
    }


def test_what_is_recorded_is_what_flows_out_of_each_module(recorded: RecordingHost) -> None:
    torch.manual_seed(0)
    net, optimizer, scaler = parts(Net(listen=True))
    assert isinstance(net, Net)
    with ampwatch.hook(net, optimizer, scaler):
        for _ in range(2):
            net.seen.clear()
            take(net, optimizer, scaler)
    (stats,) = flows(recorded)
    assert (stats.step, stats.scale) == (1, SCALE)
    places = outputs(stats)
    assert list(places) == ["head", "block.norm", "block.attn", "enter"]
    for name, place in places.items():
        (gradient,) = net.seen[name]
        assert stats.dtype[place] == str(gradient.dtype).removeprefix("torch.") == "float16"
        true = gradient.double() / SCALE
        assert stats.exponents[place] == by_hand(true)
        assert stats.max[place] == float(true.abs().max())
        assert (stats.size[place], stats.nonfinite[place]) == (gradient.numel(), 0)


def test_in_float32_they_are_those_of_a_float64_reference(recorded: RecordingHost) -> None:
    torch.manual_seed(0)
    net = Net()
    twin = Net(listen=True).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with ampwatch.hook(net, optimizer):
        for _ in range(2):
            twin.load_state_dict(net.state_dict())
            twin.seen.clear()
            inputs = torch.randn(12, 8)
            optimizer.zero_grad()
            net(inputs).square().mean().backward()
            twin(inputs.double()).square().mean().backward()
            optimizer.step()
    (stats,) = flows(recorded)
    assert stats.scale is None
    for name, place in outputs(stats).items():
        (gradient,) = twin.seen[name]
        assert stats.dtype[place] == "float32"
        assert stats.max[place] == pytest.approx(float(gradient.abs().max()), rel=1e-5)
        near, exact = stats.exponents[place], by_hand(gradient)
        assert near.seen == exact.seen
        apart = sum(abs(a - b) for a, b in zip(near.counts, exact.counts, strict=False))
        assert apart <= 4, "a value beside a power of two may fall on its other side"


def test_a_scale_that_is_no_power_of_two_is_divided_out(recorded: RecordingHost) -> None:
    torch.manual_seed(0)
    net, optimizer, scaler = parts(Net(listen=True), 1000.0)
    assert isinstance(net, Net)
    with ampwatch.hook(net, optimizer, scaler):
        for _ in range(2):
            net.seen.clear()
            take(net, optimizer, scaler)
    (stats,) = flows(recorded)
    place = outputs(stats)["head"]
    (gradient,) = net.seen["head"]
    assert stats.max[place] == pytest.approx(float(gradient.double().abs().max()) / 1000.0)
    assert stats.exponents[place].counts == by_hand(gradient).counts


def test_an_overflow_between_modules_is_counted(recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts(Net(listen=True), 2.0**24)
    with ampwatch.hook(net, optimizer, scaler):
        for _ in range(2):
            net.seen.clear()  # type: ignore[union-attr, operator]
            take(net, optimizer, scaler)
    (stats,) = flows(recorded)
    for name, place in outputs(stats).items():
        (gradient,) = net.seen[name]  # type: ignore[union-attr, index]
        assert stats.nonfinite[place] == int((~torch.isfinite(gradient)).sum())
    assert sum(stats.nonfinite) > 0


def test_what_is_used_twice_is_one_row(recorded: RecordingHost) -> None:
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    with ampwatch.hook(nn.ModuleDict({"a": layer}), optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            layer(layer(torch.ones(3, 4)).relu()).sum().backward()
            optimizer.step()
    (stats,) = flows(recorded)
    assert stats.size[outputs(stats)["a"]] == 24


def test_counts_of_several_tensors_are_added_up() -> None:
    one, other = Exponents(-3, (1, 0, 2), zeros=4), Exponents(-5, (7, 1, 1), infinite=2, nan=1)
    assert together([one, other, Exponents(0, ())]) == Exponents(-5, (7, 1, 2, 0, 2), 4, 2, 1)
    assert together([]) == Exponents(0, ())


@pytest.mark.parametrize("checkpointed", [False, True])
def test_not_a_bit_changes_when_every_step_is_looked_at(
    checkpointed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ampwatch.probe.steps.Spacing.took", lambda *_: None)
    monkeypatch.setattr("ampwatch.probe.steps.StepReader.affords", lambda *_: True)

    def wrap(net: Any) -> Any:
        return (lambda x: checkpoint(net, x, use_reentrant=False)) if checkpointed else net

    def train(watched: bool) -> tuple[dict[str, Tensor], int]:
        torch.manual_seed(0)
        net, optimizer, scaler = parts(Net(), 2.0**16)
        with recording() as host:
            watch = ampwatch.hook(net, optimizer, scaler) if watched else contextlib.nullcontext()
            with watch:
                for _ in range(20):
                    take(net, optimizer, scaler, wrap=wrap)
        state = {**net.state_dict(), "next": torch.rand(3)}
        return {name: value.clone() for name, value in state.items()}, len(flows(host))

    plain, _ = train(False)
    watched, looks = train(True)
    assert looks == 19
    assert_same_weights(plain, watched)


def hooks_in(model: nn.Module) -> int:
    """How many hooks there are on modules, of every kind torch has."""
    return sum(
        len(value)
        for module in model.modules()
        for name, value in vars(module).items()
        if name.endswith("_hooks") and isinstance(value, dict)
    )


def test_nothing_stays_behind_also_when_the_graph_is_kept(recorded: RecordingHost) -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    watch = ampwatch.hook(net, optimizer)
    before = [sorted(vars(module)) for module in net.modules()]
    for _ in range(2):
        optimizer.zero_grad()
        loss = net(torch.randn(12, 8)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()  # the same nodes again: nobody is told
        optimizer.step()
    (stats,) = flows(recorded)
    assert (stats.step, stats.size[outputs(stats)["head"]]) == (1, 12)
    assert hooks_in(net) == 0
    assert [sorted(vars(module)) for module in net.modules()] == before
    assert watch._loop.reader.flow.armed is False
    node = weakref.ref(loss)
    del loss
    gc.collect()
    assert node() is None


def test_a_backward_pass_that_fails_takes_the_hooks_off(recorded: RecordingHost) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    watch = ampwatch.hook(net, optimizer)

    def refuse(gradient: Tensor) -> None:
        raise RuntimeError("no further")

    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    hidden = net[0](torch.ones(2, 4))
    hidden.register_hook(refuse)
    with pytest.raises(RuntimeError, match="no further"):
        net[2](net[1](hidden)).sum().backward()
    assert watch._loop.reader.flow.armed is False
    assert recorded.notices == []


def test_a_compiled_or_reentrant_part_is_not_judged(recorded: RecordingHost) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with ampwatch.hook(net, optimizer):
        for _ in range(4):
            inputs = torch.ones(2, 4, requires_grad=True)
            checkpoint(net, inputs, use_reentrant=True).sum().backward()
            optimizer.step()
    assert flows(recorded) == []
    assert len(recorded.stats) > 0
    assert recorded.notices == []


def test_one_backward_pass_of_an_accumulated_step_is_looked_at(recorded: RecordingHost) -> None:
    torch.manual_seed(0)
    net, optimizer, scaler = parts(Net(listen=True))
    assert isinstance(net, Net)
    with ampwatch.hook(net, optimizer, scaler):
        for _ in range(2):
            optimizer.zero_grad()
            net.seen.clear()
            for _ in range(3):
                scaler.scale(net(torch.randn(12, 8)).square().mean() / 3).backward()
            scaler.step(optimizer)
            scaler.update()
    (stats,) = flows(recorded)
    assert len(net.seen["head"]) == 3
    first = net.seen["head"][0].double() / SCALE
    assert stats.exponents[outputs(stats)["head"]] == by_hand(first)


def test_two_networks_that_train_in_turn_have_their_rows(recorded: RecordingHost) -> None:
    torch.manual_seed(0)
    maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-2) for net in (judge, maker)]
    with ampwatch.hook([maker, judge], optimizers):
        for _ in range(4):
            for optimizer in optimizers:
                optimizer.zero_grad()
                made = maker(torch.ones(2, 4))
                judge(made.detach() if optimizer is optimizers[0] else made).sum().backward()
                optimizer.step()
    first, second = flows(recorded)
    assert first.step == second.step == 1
    assert list(outputs(first)) == ["Linear1"]  # what comes from the maker's output is not trained
    assert list(outputs(second)) == ["Linear1", "Linear0"]
    assert {stats.step for stats in recorded.stats} == {1}
    assert len(recorded.stats) == 2, "both optimizers at the same detail step"


def test_where_a_hook_fails_the_training_goes_on_without_it(
    recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError("aminmax on this device")

    monkeypatch.setattr("ampwatch.probe.activations.dense", refuse)
    net, optimizer, scaler = parts(Net())
    with ampwatch.hook(net, optimizer, scaler):
        for _ in range(20):
            take(net, optimizer, scaler)
    assert flows(recorded) == []
    assert len(recorded.steps) == 20
    assert recorded.notices == []
