"""Numbers that come late, as from a GPU: order, step numbers and values stay right."""

from __future__ import annotations

import gc

import pytest
import torch
from late_numbers import SlowTransfer, make_late
from torch import nn
from training_loops import RecordingHost, assert_same_weights, found_inf, true_norm

import ampwatch
from ampwatch.probe import losses as losses_module
from ampwatch.probe import steps as steps_module
from ampwatch.probe.losses import Losses
from ampwatch.probe.transfer import Transfer, apart
from ampwatch.record import ActivationStats
from ampwatch.record.facts import split_fact

CPU = torch.device("cpu")


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    make_late(monkeypatch)


def run(recorded: RecordingHost, fused: bool, unscale: bool) -> tuple[list[int], list[float]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
    watch = ampwatch.hook(net, optimizer, scaler)
    skips, norms = [], []
    for step in range(30):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 4)).pow(2).mean() * (float("inf") if step % 7 == 4 else 1.0)
        scaler.scale(loss).backward()
        norms.append(true_norm(net.parameters(), scaler.get_scale()))
        if unscale:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        if found_inf(scaler, optimizer):
            skips.append(step)
        scaler.update()
        watch.log(place=step)
    assert len(recorded.steps) == 30 - SlowTransfer.lag, "the last ones are still under way"
    watch.close()
    return skips, norms


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
def test_late_records_are_right(
    fused: bool, unscale: bool, recorded: RecordingHost, late: None
) -> None:
    skips, norms = run(recorded, fused, unscale)
    assert [record.step for record in recorded.steps] == list(range(30))
    assert recorded.skips == skips == [4, 11, 18, 25]
    assert [record.metrics.get("place") for record in recorded.steps] == [None, *range(29)]
    for step, record in enumerate(recorded.steps):
        if step in skips:
            assert record.nonfinite_tensors == 4
            assert record.origin == "1.bias"
        else:
            assert record.grad_norm == pytest.approx(norms[step], rel=1e-6)
            assert record.nonfinite_tensors == 0
            if unscale:
                assert record.clipped_norm == pytest.approx(min(norms[step], 0.5), rel=1e-5)


def test_activation_gradients_that_come_late_are_those_of_their_step(
    recorded: RecordingHost, late: None
) -> None:
    run(recorded, fused=False, unscale=True)
    flows = [each for each in recorded.records if isinstance(each, ActivationStats)]
    assert flows[0].step == 1
    assert (flows[0].scale, flows[0].name) == (2.0**10, ("1", "1", "0"))
    assert flows[0].after == (True, False, False)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for _ in range(2):
        optimizer.zero_grad()
        output = net(torch.randn(4, 4))
        output.retain_grad()
        output.pow(2).mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
    assert output.grad is not None
    assert flows[0].max[1] == pytest.approx(float(output.grad.abs().max()), rel=1e-5)
    assert flows[0].exponents[1].seen == output.numel()


def test_where_inf_begins_in_backward_is_told_late_too(recorded: RecordingHost, late: None) -> None:
    net = nn.Sequential(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    watch = ampwatch.hook(net, optimizer, scaler)
    for step in range(24):
        optimizer.zero_grad()
        out = net(torch.ones(3, 4))
        scaler.scale((out * (0.0 if step >= 8 else 1.0)).abs().sqrt().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    watch.close()
    assert recorded.skips == list(range(8, 24))
    told = {record.step: record.facts for record in recorded.steps if record.facts}
    # The first skip is known three steps later, and arms the search for the step after that.
    assert min(told) == 8 + SlowTransfer.lag + 1
    name, details = split_fact(told[min(told)][0])
    assert name == "backward-origin"
    assert (details["operation"], details["kind"]) == ("SqrtBackward0", "nan")
    assert (details["module"], details["place"]) == ("0", "after")
    assert details["largest"] == f"{2.0**6 / 6:.3g}"  # a mean over six, at the scale of that step


def test_a_metric_on_a_device_is_read_with_the_record(recorded: RecordingHost) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    watch = ampwatch.hook(net, optimizer)
    watch._loop.recorder.late["accuracy"] = torch.tensor(0.5)  # as log() does for other devices
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert dict(recorded.steps[0].metrics) == {"accuracy": 0.5}


def test_numbers_on_the_cpu_are_there_at_once() -> None:
    transfer = Transfer(([torch.tensor(1.5)], [], (torch.tensor(2), torch.tensor(True))), CPU)
    assert transfer.ready()
    assert transfer.values() == [[1.5], [], [2, True]]
    assert Transfer((), None).values() == []
    assert Transfer(([0.1, 2.0],), CPU).values() == [[0.1, 2.0]], "numbers already"


def test_what_is_here_already_is_not_sent_to_a_device() -> None:
    there, many = torch.empty((), device="meta"), torch.empty(2, device="meta")
    known, far = apart(([there, 0.5, torch.tensor(3)], [], many, torch.tensor([1.0, 2.0])))
    assert known == [[None, 0.5, 3], [], [None, None], [1.0, 2.0]]
    assert [each.shape for each in far] == [(1,), (2,)]


def facts_named(recorded: RecordingHost, name: str) -> list[int]:
    """The steps whose records have this fact."""
    return [
        record.step
        for record in recorded.steps
        if any(split_fact(each)[0] == name for each in record.facts)
    ]


@pytest.mark.parametrize("clear", ["to none", "to zero", "never"])
def test_gradients_that_are_never_cleared_are_known_by_their_change_counter(
    clear: str, recorded: RecordingHost, late: None
) -> None:
    net = nn.Sequential(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ampwatch.hook(net, optimizer, scaler):
        for step in range(8):
            if clear != "never":
                optimizer.zero_grad(set_to_none=clear == "to none")
            for _ in range(2):
                gain = float("inf") if step >= 3 else 1.0
                scaler.scale(net(torch.ones(3, 4)).sum() * gain).backward()
            scaler.step(optimizer)
            scaler.update()
    assert recorded.skips == [3, 4, 5, 6, 7]
    expected = [4, 5, 6, 7] if clear == "never" else []
    assert facts_named(recorded, "stale-gradients") == expected


def test_running_statistics_are_looked_at_when_the_scaler_has_waited(
    recorded: RecordingHost, late: None
) -> None:
    net = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ampwatch.hook(net, optimizer, scaler):
        for step in range(4):
            optimizer.zero_grad()
            inputs = torch.randn(3, 4) * (float("inf") if step == 2 else 1.0)
            scaler.scale(net(inputs).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert facts_named(recorded, "batchnorm-statistics") == [2]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("rate", "still"), [(1e-12, True), (1e-2, False)])
def test_weights_that_stand_still_are_told_late_and_skipped_ones_do_not_count(
    rate: float, still: bool, fused: bool, recorded: RecordingHost, late: None
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8))
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ampwatch.hook(net, optimizer, scaler):
        for step in range(40):
            optimizer.zero_grad()
            gain = float("inf") if step % 12 == 0 else 1.0  # at the detail step 12, too
            scaler.scale(net(torch.randn(3, 4)).square().mean() * gain).backward()
            scaler.step(optimizer)
            scaler.update()
    details = {stats.step for stats in recorded.stats}
    assert {1, 12, 35} <= details
    told = facts_named(recorded, "weights-still")
    assert set(told) <= details - set(recorded.skips)
    assert (1 in told, 35 in told) == (still, still)


@pytest.mark.parametrize("clear", [False, True])
def test_optimizers_that_share_a_pass_are_asked_what_they_left(
    clear: bool, recorded: RecordingHost, late: None
) -> None:
    one, two = nn.Linear(4, 2), nn.Linear(4, 2)
    first, second = (torch.optim.SGD(each.parameters(), lr=0.0) for each in (one, two))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ampwatch.hook([one, two], [first, second], scaler):
        for step in range(6):
            first.zero_grad()
            if clear:
                second.zero_grad()
            gain = float("inf") if step == 2 else 1.0
            scaler.scale((one(torch.ones(3, 4)) + two(torch.ones(3, 4)) * gain).sum()).backward()
            scaler.step(first)
            scaler.step(second)
            scaler.update()
    assert facts_named(recorded, "stale-gradients") == ([] if clear else [3, 4, 5])


@pytest.mark.parametrize("times", [1, 3])
def test_a_pass_of_another_network_does_not_make_gradients_stale(
    times: int, recorded: RecordingHost, late: None
) -> None:
    judge, maker = nn.Linear(4, 1), nn.Linear(2, 4)
    of_judge, of_maker = (torch.optim.SGD(each.parameters(), lr=0.0) for each in (judge, maker))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ampwatch.hook([judge, maker], [of_judge, of_maker], scaler):
        for _ in range(8):
            for _ in range(times):
                of_judge.zero_grad()
                scaler.scale((judge(torch.ones(3, 4)) * float("inf")).sum()).backward()
                scaler.step(of_judge)
                scaler.update()
            of_maker.zero_grad()
            scaler.scale(judge(maker(torch.ones(3, 2))).sum()).backward()
            scaler.step(of_maker)
            scaler.update()
    assert len(recorded.skips) >= 8
    assert facts_named(recorded, "stale-gradients") == []


def test_a_batch_is_not_blamed_for_what_the_model_made_of_it(
    recorded: RecordingHost, late: None
) -> None:
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ampwatch.hook(net, optimizer, scaler):
        for step in range(12):
            inputs, targets = torch.randn(3, 4), torch.randn(3, 4)
            optimizer.zero_grad()
            made = net(inputs)
            if step == 8:
                made = made / 0.0
            kept = made.detach()  # of the same size as the batch, and NaN or inf at step 8
            scaler.scale((made - targets).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert recorded.skips == [8]
    assert not torch.equal(kept, targets)
    assert facts_named(recorded, "nonfinite-input") == []


def test_running_statistics_without_a_scaler_are_told_at_the_next_detail_step(
    recorded: RecordingHost, late: None
) -> None:
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with ampwatch.hook(net, optimizer):
        for step in range(80):
            optimizer.zero_grad()
            net(torch.randn(3, 4) * (float("nan") if step == 2 else 1.0)).square().sum().backward()
            optimizer.step()
    told = facts_named(recorded, "batchnorm-statistics")
    details = {stats.step for stats in recorded.stats}
    assert told
    assert set(told) == {step for step in details if step >= 2}


def weights_of(hooked: bool) -> dict[str, torch.Tensor]:
    """After a training in which losses were inf and NaN, and all was well in between."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
    watch = ampwatch.hook(net, optimizer, scaler) if hooked else None
    for step in range(60):
        inputs = torch.randn(6, 4)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = (net(inputs).float() * (1e30 if step % 9 == 7 else 1.0)).square().mean()
        if step == 20:
            loss = loss * float("nan")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    if watch is not None:
        watch.close()
    return dict(net.state_dict())


def test_asking_ahead_changes_no_bit(recorded: RecordingHost, late: None) -> None:
    assert_same_weights(weights_of(hooked=False), weights_of(hooked=True))
    assert facts_named(recorded, "diverged"), "losses were looked into"
    assert recorded.notices == []


def test_nothing_is_read_while_a_graph_is_captured(
    recorded: RecordingHost, late: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with ampwatch.hook(net, optimizer):
        for step in range(12):
            monkeypatch.setattr(steps_module, "capturing", lambda tensor, at=step: at in (5, 6))
            before = len(SlowTransfer.made)
            optimizer.zero_grad()
            net(torch.ones(3, 4)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            assert len(SlowTransfer.made) == before + (step not in (5, 6))
    assert recorded.notices == []
    assert [record.step for record in recorded.steps] == list(range(10))


def test_losses_that_are_never_finite_leave_nothing_behind(
    recorded: RecordingHost, late: None
) -> None:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    alive = []
    with ampwatch.hook(net, optimizer, scaler):
        for step in range(161):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(3, 4)).mean() * float("nan")).backward()
            scaler.step(optimizer)
            scaler.update()
            if step in (60, 160):
                alive.append(sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()))
    assert len(recorded.skips) == 161
    assert alive[1] < alive[0] + 50


def test_backward_passes_without_any_step_are_not_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(losses_module, "MOST_LOSSES", 5)
    losses = Losses()
    for _ in range(20):
        losses.back(torch.ones(()))
        assert 1 <= len(losses.latest()) <= 5
