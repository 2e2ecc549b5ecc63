"""Which variable is blamed for a loss that was not finite, where numbers come late: the batch if it
was the batch, and nothing that the loop has put into a variable since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from late_numbers import make_late
from torch import Tensor, nn
from training_loops import RecordingHost

import ampwatch
from ampwatch.probe import frames
from ampwatch.probe.news import OF_INPUT, Remains
from ampwatch.record.facts import split_fact

NAN, INF = float("nan"), float("inf")
BAD = 9
STEPS = 16


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    make_late(monkeypatch)


class Stepper:
    """A network in float16, its optimizer and its scaler."""

    def __init__(self, inputs: int = 16, outputs: int = 1) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        self.step = -1

    def steps(self) -> Iterator[int]:
        for self.step in range(STEPS):
            self.optimizer.zero_grad()
            yield self.step

    def forward(self, inputs: Tensor, *, well: bool | None = None) -> Tensor:
        """inf at the bad step, of whatever inputs, or where it is said."""
        with torch.autocast("cpu", torch.float16):
            made: Tensor = self.net(inputs)
        well = self.step != BAD if well is None else well
        return made.float() / (1.0 if well else 0.0)

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def update(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Box:
    """A batch as an object."""

    def __init__(self, **fields: Any) -> None:
        self.data = fields


def an_output_is_kept_beside_a_batch_that_nobody_sees(at: Stepper) -> None:
    for _ in at.steps():
        hidden = iter([torch.randn(4, 16)])
        made = at.forward(next(hidden))
        kept = made.detach()
        at.backward((made - kept * 0.5).square().mean())
        at.update()


def an_autoencoder_keeps_its_output(at: Stepper) -> None:
    at.__init__(16, 16)  # type: ignore[misc]
    for _ in at.steps():
        sealed = (lambda x: (x for _ in range(2)))(torch.randn(4, 16))
        made = at.forward(next(sealed))
        kept = made.detach()
        at.backward((made - next(sealed)).square().mean())
        at.update()
        del kept


def a_state_is_detached_before_the_step(at: Stepper) -> None:
    at.__init__(16, 8)  # type: ignore[misc]
    state = torch.zeros(4, 8)
    for _ in at.steps():
        batch = torch.randn(4, 8)
        after = at.forward(torch.cat([batch, state], 1).float())
        at.backward((after * (1 + state)).square().mean())
        state = after.detach()
        at.update()


def a_state_is_detached_after_the_step(at: Stepper) -> None:
    state = torch.zeros(4, 1)
    for _ in at.steps():
        batch = torch.randn(4, 16)
        after = at.forward(batch)
        at.backward((after * (1 + state)).square().mean())
        at.update()
        state = after.detach()


def weights_of_samples_come_from_their_losses(at: Stepper) -> None:
    weights = torch.ones(4, 1)
    for _ in at.steps():
        losses = at.forward(torch.randn(4, 16)).square()
        at.backward((losses * weights).mean())
        weights = losses.detach()
        at.update()


def a_mean_of_outputs_is_changed_in_place(at: Stepper) -> None:
    mean = torch.zeros(4, 1)
    for step in at.steps():
        made = at.forward(torch.randn(4, 16))
        at.backward((made * (1 + mean)).square().mean())
        mean.lerp_(made.detach(), 0.1)
        at.update()
        if step == BAD:
            mean.zero_()


def a_variable_is_used_again_for_validation(at: Stepper) -> None:
    for step in at.steps():
        batch = torch.randn(4, 16)
        at.backward(at.forward(batch).square().mean())
        if step % 3 == 0:
            with torch.no_grad():
                batch = at.forward(torch.randn(4, 16))
        at.update()


def another_function_has_a_variable_of_that_name(at: Stepper) -> None:
    def train(batch: Tensor) -> Tensor:
        made = at.forward(batch)
        at.backward(made.square().mean())
        return made.detach()

    for _ in at.steps():
        batch = train(torch.randn(4, 16))
        at.update()
        del batch


def a_mask_is_infinite(at: Stepper) -> None:
    mask = torch.zeros(4, 4)
    mask[0, 1] = -INF
    for _ in at.steps():
        batch = torch.randn(1, 4, 16)
        made = at.forward(batch)
        mixed = nn.functional.scaled_dot_product_attention(made, made, made, mask)
        at.backward(mixed.square().mean())
        at.update()


def another_part_of_the_data_holds_nan(at: Stepper) -> None:
    data = torch.randn(4 * STEPS, 16)
    data[-1] = NAN
    for step in at.steps():
        if step == STEPS - 1:
            return
        batch = data[4 * step : 4 * step + 4]
        at.backward(at.forward(batch).square().mean())
        at.update()


CLEAN: list[Callable[[Stepper], None]] = [
    an_output_is_kept_beside_a_batch_that_nobody_sees,
    an_autoencoder_keeps_its_output,
    a_state_is_detached_before_the_step,
    a_state_is_detached_after_the_step,
    weights_of_samples_come_from_their_losses,
    a_mean_of_outputs_is_changed_in_place,
    a_variable_is_used_again_for_validation,
    another_function_has_a_variable_of_that_name,
    a_mask_is_infinite,
    another_part_of_the_data_holds_nan,
]


def blamed(recorded: RecordingHost) -> dict[int, str | None]:
    """At which steps something that was handed in, and what."""
    assert recorded.notices == []
    return {
        record.step: split_fact(each)[1].get("name")
        for record in recorded.steps
        for each in record.facts
        if each.startswith(OF_INPUT)
    }


@pytest.mark.parametrize("loop", CLEAN, ids=lambda loop: loop.__name__)
def test_nothing_is_blamed_where_the_batch_was_clean(
    loop: Callable[[Stepper], None], recorded: RecordingHost
) -> None:
    with ampwatch.hook():
        loop(Stepper())
    assert BAD in recorded.skips
    assert blamed(recorded) == {}


def bad_batch(step: int, value: float) -> Tensor:
    batch = torch.randn(4, 16)
    batch[1, 2] = value if step == BAD else 0.0
    return batch


def in_a_variable(at: Stepper, value: float) -> None:
    for step in at.steps():
        batch = bad_batch(step, value)
        at.backward(at.forward(batch, well=True).square().mean())
        at.update()


def in_an_object(at: Stepper, value: float) -> None:
    for step in at.steps():
        batch = Box(x=bad_batch(step, value))
        at.backward(at.forward(batch.data["x"], well=True).square().mean())
        at.update()


def transposed(at: Stepper, value: float) -> None:
    for step in at.steps():
        batch = bad_batch(step, value).t().contiguous()
        at.backward(at.forward(batch.t().contiguous(), well=True).square().mean())
        at.update()


def also_the_target(at: Stepper, value: float) -> None:
    at.__init__(16, 16)  # type: ignore[misc]
    for step in at.steps():
        batch = bad_batch(step, value)
        made = at.forward(batch, well=True)
        at.backward(nn.functional.l1_loss(made, batch))
        at.update()


def in_a_function(at: Stepper, value: float) -> None:
    def train(batch: Tensor) -> None:
        at.backward(at.forward(batch, well=True).square().mean())
        at.update()

    for step in at.steps():
        train(bad_batch(step, value))


def a_part_of_the_data(at: Stepper, value: float) -> None:
    data = torch.cat([bad_batch(step, value) for step in range(STEPS)])
    for step in at.steps():
        batch = data[4 * step : 4 * step + 4]
        at.backward(at.forward(batch, well=True).square().mean())
        at.update()


def one_of_several(at: Stepper, value: float) -> None:
    for step in at.steps():
        for micro in range(6):
            batch = bad_batch(step if micro == 5 else 0, value)
            at.backward(at.forward(batch, well=True).square().mean())
        at.update()


SPOILT: dict[Callable[[Stepper, float], None], str] = {
    in_a_variable: "batch",
    in_an_object: "batch.data['x']",
    transposed: "batch",
    also_the_target: "batch",
    in_a_function: "batch",
    a_part_of_the_data: "batch",
    one_of_several: "batch",
}


@pytest.mark.parametrize("value", [NAN, INF, 1e6])
@pytest.mark.parametrize("loop", SPOILT, ids=lambda loop: loop.__name__)
def test_a_bad_batch_is_blamed_at_its_own_step(
    loop: Callable[[Stepper, float], None], value: float, recorded: RecordingHost
) -> None:
    with ampwatch.hook():
        loop(Stepper(), value)
    assert recorded.skips == [BAD]
    assert blamed(recorded) == {BAD: SPOILT[loop]}


def test_data_that_were_bad_all_along_are_blamed_from_the_first_step_on(
    recorded: RecordingHost,
) -> None:
    with ampwatch.hook():
        at = Stepper()
        for _ in at.steps():
            batch = bad_batch(BAD, NAN)
            at.backward(at.forward(batch, well=True).square().mean())
            at.update()
    assert blamed(recorded) == dict.fromkeys(range(STEPS), "batch")


def test_what_may_have_been_left_behind_is_not_believed() -> None:
    handed, made = "nonfinite-input:kind=NaN", "nan-born:op=div"
    remains = Remains()
    remains.finite()
    assert remains.believed([handed]) == [handed], "the step before was well"
    assert remains.believed([handed]) == [handed], "and so is the whole row"
    assert remains.believed([made, handed]) == [made]
    assert remains.believed([handed]) == []
    remains.finite()
    assert remains.believed([]) == []
    assert remains.believed([handed]) == [], "nobody knows why"


def test_data_that_were_bad_before_anybody_looked_are_believed() -> None:
    remains = Remains()
    handed = "nonfinite-input:kind=NaN"
    assert remains.believed([]) == []
    assert remains.believed([handed]) == [handed]
    looked = Remains()
    looked.looked()
    assert looked.believed([]) == []
    assert looked.believed([handed]) == []


class Loud:
    """Must not be looked at closely."""

    def __repr__(self) -> str:
        raise AssertionError

    @property
    def __dict__(self) -> Any:
        raise AssertionError


def test_no_code_of_the_script_runs_where_its_variables_are_read() -> None:
    loud = {Loud(): torch.ones(2), torch.ones(1): torch.ones(2)}
    names = [each.name for each in frames.held()]
    assert len(loud) == 2
    assert not [name for name in names if name.startswith("loud")]


def test_tensors_are_found_in_what_holds_them() -> None:
    pair, fields = (torch.ones(1), [torch.ones(2)]), Box(x=torch.ones(3))
    assert len(pair) == 2
    assert fields.data
    names = [each.name for each in frames.held()]
    assert names[:3] == ["pair[0]", "pair[1][0]", "fields.data['x']"]


def test_a_script_that_has_called_locals_keeps_what_it_got() -> None:
    known = 5
    mine = locals()
    list(frames.held())
    assert mine["known"] == known


def test_nothing_is_kept_alive_by_the_look() -> None:
    import weakref

    tensor = torch.ones(3)
    assert "tensor" in [each.name for each in frames.held()]
    gone = weakref.ref(tensor)
    del tensor
    assert gone() is None


def test_a_state_that_is_handed_on_is_not_blamed_at_once_either(
    recorded: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # numbers are there at once
    with ampwatch.hook():
        a_state_is_detached_after_the_step(Stepper())
    assert blamed(recorded) == {}
    assert {split_fact(each)[0] for each in recorded.facts} & {"nan-born", "forward-overflow"}
