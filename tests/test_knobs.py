"""Every knob does on any loop what its answer says, or refuses with a sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training_loops import RecordingHost
from turned_loop import TurnedLoop

import ampwatch
from ampwatch.controls import KNOBS, Request
from ampwatch.rules import RULES
from ampwatch.run import Run


def test_dtype_changes_what_a_loop_computes_in(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded)
    loop.take()
    for name in ("float16", "float32", "bfloat16"):
        notice = loop.turn("dtype", name)
        assert not notice.refused
        assert notice.value == name
        loop.take()
    assert loop.dtypes == [torch.bfloat16, torch.float16, torch.float32, torch.bfloat16]
    assert [r.dtype for r in recorded.steps] == ["bfloat16", "float16", "float32", "bfloat16"]
    loop.turn("dtype", "float16")
    loop.turn("dtype", None)
    loop.take()
    assert loop.dtypes[-1] is torch.bfloat16


def test_dtype_reaches_contexts_made_once_and_decorators(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded)
    once = torch.autocast("cpu", torch.bfloat16)

    @torch.autocast("cpu", torch.bfloat16)
    def decorated(values: Tensor) -> Tensor:
        return loop.net(values)

    def both() -> tuple[torch.dtype, torch.dtype]:
        with once:
            output = loop.net(torch.ones(1, 4))
        return output.dtype, decorated(torch.ones(1, 4)).dtype

    assert both() == (torch.bfloat16, torch.bfloat16)
    loop.turn("dtype", "float16")
    assert both() == (torch.float16, torch.float16)
    loop.turn("dtype", "float32")
    assert both() == (torch.float32, torch.float32)
    loop.watch.close()
    assert both() == (torch.bfloat16, torch.bfloat16)
    assert once.fast_dtype is torch.bfloat16


def test_an_island_in_float32_stays_one(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded)
    loop.take()
    loop.turn("dtype", "float16")
    with torch.autocast("cpu", torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            assert loop.net(torch.ones(1, 4)).dtype is torch.float32
        assert loop.net(torch.ones(1, 4)).dtype is torch.float16
    assert loop.net(torch.ones(1, 4)).dtype is torch.float32


def test_dtype_on_a_loop_without_autocast(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded)
    loop.take(autocast=False)
    notice = loop.turn("dtype", "float16")
    assert notice.refused
    assert "does not use torch.autocast" in notice.text


@pytest.mark.parametrize("scaler", [None, {"init_scale": 8.0}])
def test_loss_gain_enlarges_gradients_and_not_the_loss_on_record(
    scaler: dict[str, Any] | None, recorded: RecordingHost
) -> None:
    loop = TurnedLoop(recorded, scaler=scaler)
    loop.take()
    loop.turn("loss_gain", 10.0)
    weights = loop.net.weight.detach().clone(), loop.net.bias.detach().clone()
    loop.take()
    with torch.no_grad():
        loop.net.weight.copy_(weights[0])
        loop.net.bias.copy_(weights[1])
    loop.turn("loss_gain", 1.0)
    loop.take()
    large, plain = recorded.steps[1:]
    assert large.loss == pytest.approx(plain.loss) == pytest.approx(loop.losses[2])
    assert plain.grad_norm is not None
    assert large.grad_norm == pytest.approx(10 * plain.grad_norm, rel=1e-5)
    assert [r.loss_gain for r in recorded.steps] == [1.0, 10.0, 1.0]


def test_loss_gain_on_several_outputs(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={"init_scale": 2.0})
    loop.turn("loss_gain", 10.0)
    assert loop.scaler is not None
    one = torch.ones(())
    for kind in (list, tuple, iter):
        scaled: Any = loop.scaler.scale(kind([one * 1.0, one * 3.0]))
        assert [float(value) for value in scaled] == [20.0, 60.0]


def test_injected_inf_gives_exactly_one_skip(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={})
    loop.take(2)
    assert not loop.turn("inject").refused
    loop.take(3)
    assert recorded.skips == [2]
    assert recorded.steps[2].nonfinite_values == 1
    assert loop.skipped == [False, False, True, False, False]
    assert all(bool(parameter.isfinite().all()) for parameter in loop.net.parameters())


def test_an_inf_that_a_key_has_put_in_is_no_overflow(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={"init_scale": 2.0})
    loop.take(20)
    loop.turn("inject")
    loop.take(20)
    assert recorded.skips == [20]
    run = Run()
    for record in recorded.records:
        run.add(record)
    skip = next(event for event in run.events if "skipped" in event.text)
    assert "put in by key; the scale falls from 2^1 to 1" in skip.text
    found = {finding.rule for rule in RULES for finding in rule.check(run)}
    assert found.isdisjoint({"lone-overflow", "scale-settling", "growth-probe-skip"})


def test_target_gain_reaches_the_loop(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded)
    loop.take()
    loop.turn("target_gain", 100.0)
    loop.take()
    assert [r.target_gain for r in recorded.steps] == [1.0, 100.0]
    assert loop.losses[1] > 1000 * loop.losses[0] / 100


REFUSALS = [
    ("scaler", "off", "no GradScaler"),
    ("scale", 2.0, "no scaler is on"),
    ("inject", None, "no scaler is on"),
    ("target_gain", 10.0, "does not multiply its targets"),
    ("dtype", "float16", "does not use torch.autocast"),
    ("loss_gain", "much", "is no gain"),
]


@pytest.mark.parametrize(("knob", "value", "why"), REFUSALS, ids=[r[0] for r in REFUSALS])
def test_a_knob_that_cannot_work_says_why(
    knob: str, value: Any, why: str, recorded: RecordingHost
) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    watch = ampwatch.hook(net, optimizer)
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    notice = watch._loop.knobs.turn(Request(knob, value))
    assert notice is not None
    assert notice.refused
    assert notice.knob == knob
    assert why in notice.text


@pytest.mark.parametrize("knob", [knob.name for knob in KNOBS])
@pytest.mark.parametrize("value", ["nonsense", -1.0, math.nan, math.inf, True, None, 0])
def test_no_value_whatever_harms_the_loop(knob: str, value: Any, recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={})
    loop.take()
    loop.watch._loop.stepping.turn(Request(knob, value))
    loop.take(2)
    assert len(recorded.steps) == 3
    assert recorded.notices == []
    assert all(bool(parameter.isfinite().all()) for parameter in loop.net.parameters())


def test_knobs_turned_before_the_first_step(recorded: RecordingHost) -> None:
    recorded.initial = (Request("dtype", "float16"), Request("scaler", "static"))
    loop = TurnedLoop(recorded, scaler={"init_scale": 4.0, "growth_interval": 1})
    loop.take(2)
    assert loop.dtypes == [torch.float16] * 2
    assert [(r.scaler, r.scale) for r in recorded.steps] == [("static", 4.0)] * 2
