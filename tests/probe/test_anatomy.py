"""One step taken apart: every number is torch's own, and nothing is changed or left behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode, _len_torch_function_stack
from training_loops import RecordingHost, network, recording

import ampwatch
from ampwatch.controls import EXPLAIN, Request
from ampwatch.probe.anatomy_follow import choose
from ampwatch.record import Notice, Operation, StepAnatomy, TensorStats, from_json, to_json
from ampwatch.watch import Watch

HALF = torch.float16
INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have compiled something."""
    monkeypatch.setitem(counters["stats"], "unique_graphs", 0)


@pytest.fixture
def recorded() -> Iterator[RecordingHost]:
    with recording() as here:
        yield here


def anatomies(recorded: RecordingHost) -> list[StepAnatomy]:
    return [record for record in recorded.records if isinstance(record, StepAnatomy)]


def ask(watch: Watch, tensor: str | None = None) -> Notice | None:
    return watch._loop.knobs.turn(Request(EXPLAIN.name, tensor))


class Trained:
    """A loop that keeps what it sees of itself: gradients before and after ``unscale_``."""

    def __init__(self, recorded: RecordingHost, **scaler: Any) -> None:
        torch.manual_seed(0)
        self.recorded = recorded
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.5)
        self.scaler = torch.amp.GradScaler("cpu", **scaler)
        self.watch = ampwatch.hook(self.net, self.optimizer, self.scaler)
        self.outputs: list[Tensor] = []

    def step(self, gain: float = 1.0) -> None:
        self.optimizer.zero_grad()
        with torch.autocast("cpu", HALF):
            output = self.net(torch.ones(3, 4))
            self.loss = nn.functional.mse_loss(output, torch.full((3, 1), gain))
        self.scaled_loss = self.scaler.scale(self.loss)
        self.scale = self.scaler.get_scale()
        self.tracker = int(self.scaler._get_growth_tracker())
        self.scaled_loss.backward()
        self.scaled = self.gradients()
        self.before = self.weights()
        self.scaler.unscale_(self.optimizer)
        self.unscaled = self.gradients()
        self.scaler.step(self.optimizer)
        self.after = self.weights()
        self.scaler.update()

    def gradients(self) -> dict[str, Tensor]:
        return {
            name: parameter.grad.double().clone()
            for name, parameter in self.net.named_parameters()
            if parameter.grad is not None
        }

    def weights(self) -> dict[str, Tensor]:
        return {name: each.detach().double().clone() for name, each in self.net.named_parameters()}

    def explained(self, gain: float = 1.0, tensor: str | None = None) -> StepAnatomy:
        assert ask(self.watch, tensor) is None
        self.step(gain)
        return anatomies(self.recorded)[-1]


def picked(values: dict[str, Tensor], anatomy: StepAnatomy) -> tuple[float, ...]:
    """What a whole tensor holds where the record has looked."""
    followed = anatomy.followed
    assert followed is not None
    return tuple(values[followed.name].reshape(-1)[list(followed.index)].tolist())


def test_a_step_is_told_with_its_own_numbers(recorded: RecordingHost) -> None:
    loop = Trained(recorded, init_scale=1024.0)
    loop.step()
    anatomy = loop.explained(tensor="0.weight")
    assert (anatomy.step, anatomy.optimizer, anatomy.dtype) == (1, "SGD", "float16")
    assert (anatomy.loss, anatomy.loss_dtype) == (loop.loss.item(), "float32")
    assert anatomy.scaled_loss == loop.scaled_loss.item() == loop.loss.item() * 1024
    assert (anatomy.scale, anatomy.growth_tracker) == (loop.scale, loop.tracker) == (1024.0, 1)
    assert (anatomy.scale_after, anatomy.growth_tracker_after) == (1024.0, 2)
    assert (anatomy.found_inf, anatomy.stepped, anatomy.losses) == (0.0, True, 1)
    assert (anatomy.tensors, anatomy.nonfinite_tensors, anatomy.nonfinite_values) == (4, 0, 0)
    assert anatomy.gradient_dtypes == ("float32",)
    assert anatomy.gradient_largest == max(float(g.abs().max()) for g in loop.scaled.values())
    followed = anatomy.followed
    assert followed is not None
    assert (followed.name, followed.shape) == ("0.weight", (8, 4))
    assert followed.scaled == picked(loop.scaled, anatomy)
    assert followed.unscaled == picked(loop.unscaled, anatomy)
    assert followed.before == picked(loop.before, anatomy)
    assert followed.after == picked(loop.after, anatomy)
    gradient = loop.scaled["0.weight"]
    assert followed.largest == abs(followed.scaled[0]) == float(gradient.abs().max())
    assert followed.zeros == int((gradient == 0).sum())
    # What float16 would keep of the gradient without its scale, by a real cast.
    cast = (gradient / 1024).to(HALF)
    assert followed.flushed == int(((cast == 0) & (gradient != 0)).sum())
    # The update of SGD in float64, to the precision of float32.
    for before, gradient_value, after in zip(
        followed.before, followed.unscaled, followed.after, strict=True
    ):
        assert after == pytest.approx(before - 0.5 * gradient_value, rel=1e-6)
    assert from_json(to_json(anatomy)) == anatomy


def test_operations_are_those_of_the_script_with_the_dtypes_autocast_gave_them(
    recorded: RecordingHost,
) -> None:
    loop = Trained(recorded, init_scale=1024.0)
    loop.step()
    operations = loop.explained().operations
    told = [(o.name, o.module, o.inputs, o.weights, o.output, o.gradient) for o in operations]
    full, half = "float32", "float16"
    assert told == [
        ("linear", "0", (full,), (full, full), half, half),
        ("relu", "1", (half,), (), half, half),
        ("linear", "2", (half,), (full, full), half, half),
        ("mse_loss", None, (half, full), (), full, full),
    ]
    with torch.autocast("cpu", HALF):  # the same by hand, from the weights before the step
        now = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        now.load_state_dict({name: each.float() for name, each in loop.before.items()})
        first = now[0](torch.ones(3, 4))
    assert operations[0].largest == first.abs().max().item()
    assert (operations[0].size, operations[0].nonfinite) == (24, 0)
    # The gradient that comes back to the loss is the scale itself.
    assert operations[3].gradient_largest == 1024.0


def test_a_skipped_step_shows_where_inf_came_up(recorded: RecordingHost) -> None:
    loop = Trained(recorded, init_scale=1024.0)
    loop.step()
    anatomy = loop.explained(gain=1e4)
    # d mse / d output = 2/3 (output - target), times 1024: beyond 65504 in float16.
    assert 2 / 3 * 1e4 * 1024 > 65504
    assert (anatomy.found_inf, anatomy.stepped) == (1.0, False)
    assert (anatomy.scale, anatomy.scale_after) == (1024.0, 512.0)
    assert (anatomy.growth_tracker, anatomy.growth_tracker_after) == (1, 0)
    where = anatomy.infinite_at()
    assert where is not None
    assert (where.name, where.module, where.gradient) == ("linear", "2", "float16")
    assert (where.gradient_nonfinite, where.size) == (3, 3)
    loss = anatomy.operations[-1]
    assert (loss.gradient_nonfinite, loss.gradient_largest) == (0, 1024.0)
    bad = [name for name, each in loop.scaled.items() if not bool(torch.isfinite(each).all())]
    assert anatomy.nonfinite_tensors == len(bad) > 0
    values = sum(int((~torch.isfinite(each)).sum()) for each in loop.scaled.values())
    assert anatomy.nonfinite_values == values
    assert anatomy.origin in bad
    followed = anatomy.followed
    assert followed is not None
    assert followed.name == anatomy.origin  # nobody asked for another one
    assert followed.before == followed.after == picked(loop.before, anatomy)
    assert not math.isfinite(followed.scaled[0])  # NaN where inf met a 0 of the ReLU
    assert not math.isfinite(followed.unscaled[0])


def test_an_inf_put_in_by_key_is_found_in_the_gradient_alone(recorded: RecordingHost) -> None:
    loop = Trained(recorded, init_scale=1024.0)
    loop.step()
    loop.watch._loop.knobs.turn(Request("inject"))
    anatomy = loop.explained()
    assert anatomy.infinite_at() is None
    assert (anatomy.nonfinite_values, anatomy.origin) == (1, "0.weight")
    assert anatomy.injected
    assert anatomy.followed is not None
    assert anatomy.followed.scaled[0] == math.inf


def test_one_asked_for_is_one_told(recorded: RecordingHost) -> None:
    loop = Trained(recorded)
    loop.step()
    loop.explained()
    for _ in range(3):
        loop.step()
    assert len(anatomies(recorded)) == 1


def test_where_the_gradients_of_that_step_lie_is_measured_as_well(recorded: RecordingHost) -> None:
    loop = Trained(recorded)
    for _ in range(60):  # past the first detail steps, which come by themselves
        loop.step()
    before = [record.step for record in recorded.records if isinstance(record, TensorStats)]
    ask(loop.watch)
    loop.step()
    (told,) = anatomies(recorded)
    after = [record.step for record in recorded.records if isinstance(record, TensorStats)]
    assert after == [*before, told.step]


def test_a_name_that_does_not_exist_leaves_the_choice_to_us(recorded: RecordingHost) -> None:
    loop = Trained(recorded)
    loop.step()
    followed = loop.explained(tensor="no such").followed
    assert followed is not None
    assert followed.name in ("0.weight", "2.weight")  # a weight, not a bias


def test_an_overflow_in_the_forward_pass_shows_in_the_results(recorded: RecordingHost) -> None:
    loop = Trained(recorded)
    loop.step()
    with torch.no_grad():
        loop.net[0].weight.fill_(3e4)  # four inputs of 1: 1.2e5 is beyond float16
    anatomy = loop.explained()
    first = anatomy.operations[0]
    assert (first.nonfinite, first.largest) == (24, None)
    assert anatomy.stepped is False


# -- loops of other kinds -----------------------------------------------------------------------


def plain_loop(
    recorded: RecordingHost,
    *,
    dtype: torch.dtype | None = None,
    optimizer: Callable[..., Any] = torch.optim.SGD,
    scaler: torch.amp.GradScaler | None = None,
    accumulate: int = 1,
    clip: str = "",
) -> StepAnatomy:
    """Three steps, the last of them taken apart."""
    torch.manual_seed(1)
    net = network()
    stepper = optimizer(net.parameters(), lr=0.1)
    watch = ampwatch.hook(net, stepper, scaler)
    for step in range(3):
        if step == 2:
            ask(watch, "2.weight")
        stepper.zero_grad()
        for _ in range(accumulate):
            with torch.autocast("cpu", dtype or HALF, enabled=dtype is not None):
                loss = net(torch.ones(5, 8)).float().pow(2).mean()
            (loss if scaler is None else scaler.scale(loss)).backward()
        if clip == "scaled":
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        if clip == "unscaled":
            assert scaler is not None
            scaler.unscale_(stepper)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        if scaler is None:
            stepper.step()
        else:
            scaler.step(stepper)
            scaler.update()
    watch.close()
    (anatomy,) = anatomies(recorded)
    return anatomy


def test_without_a_scaler_there_is_no_scale(recorded: RecordingHost) -> None:
    anatomy = plain_loop(recorded)
    assert (anatomy.scaler, anatomy.scale, anatomy.scaled_loss) == (None, None, None)
    assert (anatomy.found_inf, anatomy.stepped, anatomy.dtype) == (None, True, "float32")
    followed = anatomy.followed
    assert followed is not None
    assert followed.scaled == followed.unscaled
    assert followed.flushed is None
    assert followed.before != followed.after
    assert [o.output for o in anatomy.operations[:3]] == ["float32"] * 3


def test_a_disabled_scaler_is_told_as_off(recorded: RecordingHost) -> None:
    off = torch.amp.GradScaler("cpu", enabled=False)
    anatomy = plain_loop(recorded, dtype=torch.bfloat16, scaler=off)
    assert (anatomy.scaler, anatomy.scale, anatomy.found_inf) == ("off", None, None)
    assert (anatomy.dtype, anatomy.stepped) == ("bfloat16", True)
    assert anatomy.operations[0].output == "bfloat16"


@pytest.mark.parametrize("enabled", [True, False])
def test_a_product_of_the_loops_own_is_no_scale(recorded: RecordingHost, enabled: bool) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=enabled)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch = ampwatch.hook(net, optimizer, scaler)
    ask(watch)
    for _ in range(2):
        with torch.autocast("cpu", HALF):
            loss = nn.functional.mse_loss(net(torch.ones(3, 4)), torch.ones(3, 1)) * 0.5
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    anatomy = anatomies(recorded)[-1]
    assert [each.name for each in anatomy.operations] == ["linear", "mse_loss", "mul"]
    assert anatomy.scale == (256.0 if enabled else None)
    assert (anatomy.scaled_loss is None) is not enabled


def test_accumulation_is_told_as_several_backward_passes(recorded: RecordingHost) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    anatomy = plain_loop(recorded, dtype=HALF, scaler=scaler, accumulate=3)
    assert anatomy.losses == 3
    names = [o.name for o in anatomy.operations]
    assert names == ["linear", "relu", "linear", "float", "pow", "mean"]
    assert anatomy.scaled_loss == pytest.approx((anatomy.loss or 0) * 256)


def test_clipping_after_unscale_is_a_stage(recorded: RecordingHost) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    anatomy = plain_loop(recorded, dtype=HALF, scaler=scaler, clip="unscaled")
    followed = anatomy.followed
    assert followed is not None
    assert anatomy.clip_limit == 0.01
    assert anatomy.clip_norm is not None
    assert anatomy.clip_norm > 0.01
    assert not anatomy.clipped_scaled
    for scaled, unscaled, clipped in zip(
        followed.scaled, followed.unscaled, followed.clipped, strict=True
    ):
        assert unscaled == scaled / 256
        assert clipped == pytest.approx(unscaled * 0.01 / (anatomy.clip_norm + 1e-6), rel=1e-5)


def test_clipping_of_scaled_gradients_is_told_as_that(recorded: RecordingHost) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    anatomy = plain_loop(recorded, dtype=HALF, scaler=scaler, clip="scaled")
    assert anatomy.clipped_scaled
    followed = anatomy.followed
    assert followed is not None
    assert followed.unscaled == followed.scaled  # what came to the clip still had the scale
    assert len(followed.clipped) == len(followed.scaled)


def test_a_fused_optimizer_divides_by_itself(recorded: RecordingHost) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

    def fused(parameters: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr, fused=True)

    anatomy = plain_loop(recorded, dtype=HALF, scaler=scaler, optimizer=fused)
    followed = anatomy.followed
    assert followed is not None
    assert anatomy.fused
    assert anatomy.stepped
    assert followed.unscaled == tuple(value / 256 for value in followed.scaled)
    assert followed.before != followed.after


def test_a_fused_optimizer_that_finds_inf_has_not_stepped(recorded: RecordingHost) -> None:
    torch.manual_seed(1)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    with ampwatch.hook(net, optimizer, scaler) as watch:
        for step in range(2):
            if step == 1:
                ask(watch)
            optimizer.zero_grad()
            with torch.autocast("cpu", HALF):
                loss = net(torch.ones(5, 8)).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    (anatomy,) = anatomies(recorded)
    assert (anatomy.fused, anatomy.found_inf, anatomy.stepped) == (True, 1.0, False)
    assert anatomy.followed is not None
    assert anatomy.followed.before == anatomy.followed.after


def test_of_several_optimizers_the_first_that_steps_is_told(recorded: RecordingHost) -> None:
    torch.manual_seed(0)
    one, two = nn.Linear(4, 4), nn.Linear(4, 1)
    first = torch.optim.SGD(one.parameters(), lr=0.1)
    second = torch.optim.Adam(two.parameters(), lr=0.1)
    with ampwatch.hook([one, two], [first, second]) as watch:
        for step in range(3):
            if step == 1:
                ask(watch)
            two(one(torch.ones(2, 4))).pow(2).mean().backward()
            first.step()
            second.step()
            first.zero_grad()
            second.zero_grad()
    (anatomy,) = anatomies(recorded)
    assert (anatomy.step, anatomy.optimizer, anatomy.tensors) == (1, "SGD", 2)


def test_a_model_of_functions_alone_is_seen(recorded: RecordingHost) -> None:
    weight = torch.ones(4, 1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with ampwatch.hook(optimizer=optimizer) as watch:
        for step in range(2):
            if step == 1:
                ask(watch)
            (torch.ones(3, 4) @ weight).exp().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    (anatomy,) = anatomies(recorded)
    assert [o.name for o in anatomy.operations] == ["matmul", "exp", "mean"]
    assert anatomy.operations[0].weights == ("float32",)
    assert [o.module for o in anatomy.operations] == [None] * 3


def test_an_evaluation_before_the_step_is_no_part_of_it(recorded: RecordingHost) -> None:
    loop = Trained(recorded)
    loop.step()
    ask(loop.watch)
    with torch.no_grad():
        loop.net(torch.ones(9, 4))
    loop.step()
    (anatomy,) = anatomies(recorded)
    assert [o.size for o in anatomy.operations] == [24, 24, 3, 1]


def test_a_loop_that_goes_back_inside_its_optimizer_has_no_weights_before(
    recorded: RecordingHost,
) -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(3, 4)).pow(2).mean()
        loss.backward()
        return loss

    with ampwatch.hook(net, optimizer) as watch:
        for step in range(2):
            if step == 1:
                ask(watch)
            optimizer.step(closure)
    (anatomy,) = anatomies(recorded)
    assert anatomy.followed is None
    assert anatomy.stepped
    assert [o.name for o in anatomy.operations] == ["linear", "pow", "mean"]


# -- what must not happen -----------------------------------------------------------------------


def hooks() -> int:
    return len(modules._global_forward_hooks) + len(modules._global_forward_pre_hooks)


@pytest.mark.parametrize("where", ["net", "loss", "backward"])
def test_a_loop_that_throws_leaves_nothing_of_ours_behind(
    recorded: RecordingHost, where: str
) -> None:
    class Thrower(nn.Module):
        def forward(self, values: Tensor) -> Tensor:
            if where == "net":
                raise ValueError(where)
            return values * 1

    def refuse(gradient: Tensor) -> None:
        raise ValueError(where)

    before = hooks()
    net = nn.Sequential(nn.Linear(4, 1), Thrower())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def run() -> None:
        with ampwatch.hook(net, optimizer) as watch:
            watch._loop.stepping.explain(None)
            output = net(torch.ones(2, 4))
            if where == "loss":
                nn.functional.mse_loss(output, torch.ones(5, 7, 9))
            output.register_hook(refuse)
            output.sum().backward()

    with pytest.raises((ValueError, RuntimeError)):
        run()
    assert _len_torch_function_stack() == 0
    assert hooks() == before
    assert recorded.notices == []


def test_nothing_of_ours_is_there_after_the_step(recorded: RecordingHost) -> None:
    before = hooks()
    loop = Trained(recorded)
    loop.step()
    loop.explained()
    assert (_len_torch_function_stack(), hooks()) == (0, before)
    assert loop.watch._loop.stepping.dissection is None
    assert type(loop.net) is nn.Sequential
    assert not any(parameter._backward_hooks for parameter in loop.net.parameters())


class Counting(TorchFunctionMode):
    """Somebody's own mode."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_a_mode_that_is_left_within_the_step_takes_itself_off(recorded: RecordingHost) -> None:
    """It was entered before ours came, and is left while ours is there."""
    loop = Trained(recorded)
    loop.step()
    ask(loop.watch)
    theirs = Counting()
    with theirs, torch.device("cpu"):
        loop.net(torch.ones(3, 4))
        assert _len_torch_function_stack() == 3
    calls = theirs.calls
    assert calls > 0
    assert _len_torch_function_stack() == 1
    loop.step()
    assert theirs.calls == calls
    assert _len_torch_function_stack() == 0


def test_under_torch_compile_operations_are_left_alone_and_it_is_said_why(
    recorded: RecordingHost,
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = torch.compile(net, backend="eager")
    with ampwatch.hook(net, optimizer) as watch:
        for step in range(3):
            if step == 2:
                notice = ask(watch)
            compiled(torch.ones(3, 4)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert notice is not None
    assert "torch.compile" in notice.text
    assert counters["stats"]["unique_graphs"] == 1  # nothing was compiled anew
    (anatomy,) = anatomies(recorded)
    assert anatomy.operations == ()
    assert "torch.compile" in (anatomy.no_operations or "")
    assert anatomy.followed is not None
    assert anatomy.followed.before != anatomy.followed.after


def test_an_error_of_ours_ends_the_look_and_not_the_watching(
    recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise ZeroDivisionError("of ours")

    loop = Trained(recorded)
    loop.step()
    monkeypatch.setattr("ampwatch.probe.anatomy_forward.extent", broken)
    ask(loop.watch)
    loop.step()
    loop.step()
    assert anatomies(recorded) == []
    assert any("ZeroDivisionError: of ours" in text for text in recorded.notices)
    assert len(recorded.steps) == 3
    assert _len_torch_function_stack() == 0


def test_operations_of_a_deep_model_are_counted_beyond_the_most(
    recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ampwatch.probe.anatomy_forward.MOST_OPERATIONS", 2)
    loop = Trained(recorded)
    loop.step()
    anatomy = loop.explained()
    assert [type(o) for o in anatomy.operations] == [Operation, Operation]
    assert anatomy.left_out == 2


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([1.0, INF, -4.0, 0.0, 2.0], [1, 2, 4, 0, 3]),
        ([INF] * 5, [0, 2, 4]),
        ([0.0] * 6, [0, 3, 5]),
        ([NAN], [0]),
    ],
)
def test_values_to_follow_are_the_telling_ones_and_never_too_few(
    values: list[float], places: list[int]
) -> None:
    assert choose(torch.tensor(values)) == places
