"""The guest rule: nothing of ours stays on what is the loop's; all is as it was found."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.amp.autocast_mode import autocast
from torch.nn.utils import clip_grad
from torch.optim import optimizer as optimizer_module
from training_loops import RecordingHost

import ampwatch
from ampwatch import watch as watch_module

Parts = tuple[nn.Module, torch.optim.Optimizer, GradScaler]


def parts(**scaler: Any) -> Parts:
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    return net, torch.optim.SGD(net.parameters(), lr=1e-3), GradScaler("cpu", **scaler)


def take(net: nn.Module, optimizer: torch.optim.Optimizer, scaler: GradScaler) -> None:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(torch.ones(2, 4)).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def patched_places() -> dict[str, Any]:
    """Every place of torch's that a hook may change."""
    return {
        "backward": torch.autograd.backward,
        "autocast": autocast.__enter__,
        "scaler": GradScaler.__init__,
        "clip": clip_grad._clip_grads_with_norm_,
        "parameters": nn.Module.named_parameters,
        "before": tuple(optimizer_module._global_optimizer_pre_hooks.values()),
        "after": tuple(optimizer_module._global_optimizer_post_hooks.values()),
        "forward": tuple(torch.nn.modules.module._global_forward_pre_hooks.values()),
    }


ORIGINAL = patched_places()


@pytest.fixture(autouse=True)
def everything_is_as_it_was_found() -> Any:
    assert patched_places() == ORIGINAL
    yield
    for each in watch_module._open.copy():
        each.close()
    assert patched_places() == ORIGINAL


def test_instances_keep_their_attributes(recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts()
    before = [set(vars(each)) for each in (net, optimizer, scaler)]
    hooks = {name: dict(value) for name, value in vars(net).items() if name.endswith("_hooks")}
    ampwatch.hook(net, optimizer, scaler)
    take(net, optimizer, scaler)
    assert [set(vars(each)) for each in (net, optimizer, scaler)] == before
    assert {name: dict(vars(net)[name]) for name in hooks} == hooks
    assert not optimizer._optimizer_step_pre_hooks
    assert all(not parameter._backward_hooks for parameter in net.parameters())


def test_the_scaler_is_of_its_own_class_again_after_close(recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts()
    watch = ampwatch.hook(net, optimizer, scaler)
    assert isinstance(scaler, GradScaler)
    watch.close()
    assert type(scaler) is GradScaler
    watch.close()
    assert type(scaler) is GradScaler


def test_a_scaler_class_of_the_users_own(recorded: RecordingHost) -> None:
    class Careful(GradScaler):
        updates = 0

        def update(self, new_scale: Any = None) -> None:
            self.updates += 1
            super().update(new_scale)

    net, optimizer, _ = parts()
    scaler = Careful("cpu")
    watch = ampwatch.hook(net, optimizer, scaler)
    take(net, optimizer, scaler)
    assert scaler.updates == 1
    assert isinstance(scaler, Careful)
    watch.close()
    assert type(scaler) is Careful
    assert len(recorded.steps) == 1


@pytest.mark.parametrize("how", ["pickle", "torch.save", "deepcopy", "copy"])
def test_copies_are_plain_and_not_watched(how: str, recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts()
    ampwatch.hook(net, optimizer, scaler)
    take(net, optimizer, scaler)

    def through_a_file(value: Any) -> Any:
        buffer = io.BytesIO()
        torch.save(value, buffer)
        buffer.seek(0)
        return torch.load(buffer, weights_only=False)

    again = {
        "pickle": lambda value: pickle.loads(pickle.dumps(value)),
        "torch.save": through_a_file,
        "deepcopy": copy.deepcopy,
        "copy": copy.copy,
    }[how]
    if how == "copy":
        other: Any = again(scaler)
        assert type(other) is GradScaler
        return
    net2, optimizer2, scaler2 = again((net, optimizer, scaler))
    assert type(scaler2) is GradScaler
    assert type(net2) is nn.Linear
    assert scaler2.state_dict() == scaler.state_dict()
    take(net2, optimizer2, scaler2)
    assert scaler2.get_scale() == scaler.get_scale()
    assert not torch.equal(net2.weight, net.weight), "the copy trains by itself"
    assert type(scaler) is not GradScaler, "the original is still watched"


def test_a_copy_of_the_network_for_averages_is_not_watched(recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts()
    ampwatch.hook(net, optimizer, scaler)
    average = torch.optim.swa_utils.AveragedModel(net)
    for _ in range(3):
        take(net, optimizer, scaler)
        average.update_parameters(net)
    assert len(recorded.steps) == 3
    assert copy.deepcopy(average) is not None


class Traced(torch.autograd.Function):
    """Leaves a weak reference to its graph node's context."""

    contexts: list[weakref.ref[Any]] = []  # noqa: RUF012

    @staticmethod
    def forward(context: Any, value: Tensor) -> Tensor:
        Traced.contexts.append(weakref.ref(context))
        return value * 1.0

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


@pytest.mark.parametrize("back", [True, False])
def test_no_graph_is_kept_alive(back: bool, recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts()
    ampwatch.hook(net, optimizer, scaler)
    Traced.contexts.clear()
    for _ in range(20):
        loss = Traced.apply(net(torch.ones(2, 4)).pow(2).mean())
        scaled = scaler.scale(loss)
        if back:
            scaled.backward()
            scaler.step(optimizer)
            scaler.update()
    del loss, scaled
    assert len(Traced.contexts) == 20
    assert [ref() for ref in Traced.contexts] == [None] * 20


def test_everything_can_be_collected_while_it_is_watched(recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts()
    watch = ampwatch.hook(net, optimizer, scaler)
    take(net, optimizer, scaler)
    refs = [weakref.ref(each) for each in (net, optimizer, scaler, net.weight, net.weight.grad)]
    del net, optimizer, scaler
    gc.collect()
    assert [ref() for ref in refs] == [None] * 5
    watch.close()


def test_what_is_found_by_itself_can_be_collected_too(recorded: RecordingHost) -> None:
    ampwatch.hook()
    net, optimizer, scaler = parts()
    take(net, optimizer, scaler)
    refs = [weakref.ref(each) for each in (net, optimizer, scaler)]
    del net, optimizer, scaler
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


@pytest.mark.parametrize("order", ["first in, first out", "last in, first out"])
def test_two_hooks_close_in_any_order(order: str, recorded: RecordingHost) -> None:
    one, two = parts(), parts()
    watches = [ampwatch.hook(*one), ampwatch.hook(*two)]
    take(*one)
    take(*two)
    assert len(recorded.steps) == 2
    first, second = watches if order.startswith("first") else reversed(watches)
    first.close()
    left = two if first is watches[0] else one
    take(*one)
    take(*two)
    assert len(recorded.steps) == 3, "the one that is left still sees its loop"
    assert recorded.steps[-1].clipped_norm is not None
    assert recorded.steps[-1].dtype == "bfloat16"
    assert recorded.steps[-1].loss is not None
    second.close()
    assert patched_places() == ORIGINAL
    assert type(left[2]) is GradScaler


def test_a_scaler_shared_by_two_hooks_stays_watched_by_the_second(
    recorded: RecordingHost,
) -> None:
    one, two = parts(), parts()
    first = ampwatch.hook(one[0], one[1])
    second = ampwatch.hook(two[0], two[1])
    scaler = GradScaler("cpu")  # both hear of it
    for net, optimizer in (one[:2], two[:2]):
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(2, 4)).mean()).backward()
        scaler.step(optimizer)
    scaler.update()
    assert [record.scale for record in recorded.steps] == [65536.0, 65536.0]
    first.close()
    assert type(scaler) is not GradScaler
    second.close()
    assert type(scaler) is GradScaler


def test_somebody_elses_wrapper_on_top_stays_and_works(recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts()
    watch = ampwatch.hook(net, optimizer, scaler)
    ours, calls = torch.autograd.backward, []

    def theirs(*args: Any, **kwargs: Any) -> None:
        calls.append(1)
        ours(*args, **kwargs)

    torch.autograd.backward = theirs
    try:
        watch.close()
        assert torch.autograd.backward is theirs
        take(net, optimizer, scaler)
        assert len(calls) == 1
        again = ampwatch.hook(net, optimizer, scaler)
        take(net, optimizer, scaler)
        assert recorded.steps[-1].losses == 1, "the wrapper left below does not count it again"
        again.close()
        assert torch.autograd.backward is theirs
    finally:
        torch.autograd.backward = ORIGINAL["backward"]


def test_an_exception_in_the_loop_leaves_everything_as_it_was(recorded: RecordingHost) -> None:
    net, optimizer, scaler = parts()
    with pytest.raises(RuntimeError, match="from the loop"), ampwatch.hook(net, optimizer, scaler):
        raise RuntimeError("from the loop")
    assert patched_places() == ORIGINAL
    assert type(scaler) is GradScaler


def test_signal_handlers_and_warnings_are_left_alone(recorded: RecordingHost) -> None:
    import signal
    import sys
    import threading
    import warnings

    def state() -> tuple[Any, ...]:
        return (
            signal.getsignal(signal.SIGINT),
            signal.getsignal(signal.SIGTERM),
            sys.excepthook,
            sys.stdout,
            sys.stderr,
            threading.active_count(),
            list(warnings.filters),
        )

    before = state()
    net, optimizer, scaler = parts()
    ampwatch.hook(net, optimizer, scaler)
    take(net, optimizer, scaler)
    assert state() == before
