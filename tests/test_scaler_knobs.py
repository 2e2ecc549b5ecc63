"""The keys that switch the scaler and move the scale."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from training_loops import RecordingHost
from turned_loop import TurnedLoop

from ampwatch.controls import Request


def test_scaler_off_and_on_again(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={"init_scale": 8.0})
    loop.take(2)
    assert loop.turn("scaler", "off").value == "off"
    loop.take()
    assert loop.scaler is not None
    assert loop.scaler.state_dict()["scale"] == 8.0, "a checkpoint still has its state"
    loop.turn("scaler", "dynamic")
    loop.take()
    assert [r.scaler for r in recorded.steps] == ["dynamic", "dynamic", "off", "dynamic"]
    assert [r.scale for r in recorded.steps] == [8.0, 8.0, None, 8.0]
    assert [r.grad_norm for r in recorded.steps] == pytest.approx(loop.norms, rel=1e-6)


def test_a_copy_of_a_scaler_that_a_key_has_switched_off_is_on(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={"init_scale": 8.0})
    loop.take()
    loop.turn("scaler", "off")
    again = copy.deepcopy(loop.scaler)
    assert again is not None
    assert again.is_enabled()
    assert again.get_scale() == 8.0


def test_scaler_switched_off_by_key_is_on_again_after_close(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={})
    loop.take()
    loop.turn("scaler", "off")
    loop.watch.close()
    assert loop.scaler is not None
    assert loop.scaler.is_enabled()


def test_static_keeps_the_scale_through_growth_and_overflow(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={"init_scale": 8.0, "growth_interval": 1})
    loop.take()
    assert "16" in loop.turn("scaler", "static").text
    loop.take(2)
    loop.turn("inject")
    loop.take(2)
    assert [r.scale for r in recorded.steps] == [8.0, 16.0, 16.0, 16.0, 16.0]
    assert recorded.skips == [3] == [step for step, skip in enumerate(loop.skipped) if skip]
    assert [r.scaler for r in recorded.steps] == ["dynamic", *["static"] * 4]
    loop.turn("scaler", "dynamic")
    loop.take(2)
    assert [r.scale for r in recorded.steps[-2:]] == [16.0, 32.0]


def test_static_follows_a_scale_that_the_loop_sets(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={"init_scale": 8.0, "growth_interval": 1})
    loop.take()
    loop.turn("scaler", "static")
    assert loop.scaler is not None
    loop.scaler.update(4.0)
    loop.take(2)
    assert [r.scale for r in recorded.steps] == [8.0, 4.0, 4.0]


def test_scale_moves_by_its_factor(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={"init_scale": 8.0})
    loop.turn("scale", 2.0)  # before the first step
    loop.take()
    loop.turn("scale", 0.5)
    loop.take()
    loop.turn("scaler", "static")
    loop.turn("scale", 4.0)
    loop.take(2)
    assert [r.scale for r in recorded.steps] == [16.0, 8.0, 32.0, 32.0]
    assert recorded.skips == []


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_scale_stops_at_what_float32_can_hold(factor: float, recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={})
    loop.take()
    refused = False
    for _ in range(300):
        notice = loop.turn("scale", factor)
        if notice.refused:
            refused = True
            assert "beyond what float32 can hold" in notice.text
            break
    assert refused
    assert loop.scaler is not None
    assert 0 < loop.scaler.get_scale() < math.inf


def test_a_policy_holds_for_a_scaler_that_is_made_later(recorded: RecordingHost) -> None:
    recorded.initial = (Request("scaler", "off"),)
    loop = TurnedLoop(recorded)
    loop.scaler = torch.amp.GradScaler("cpu")
    loop.take()
    assert recorded.steps[0].scaler == "off"


def test_a_scaler_made_disabled_can_be_switched_on(recorded: RecordingHost) -> None:
    loop = TurnedLoop(recorded, scaler={"enabled": False})
    loop.take()
    assert not loop.turn("scaler", "dynamic").refused
    loop.take()
    assert [r.scaler for r in recorded.steps] == ["off", "dynamic"]
    assert recorded.steps[1].scale == 65536.0
    assert loop.scaler is not None
    assert loop.scaler.state_dict() == {}
    loop.watch.close()
    assert vars(loop.scaler) == vars(torch.amp.GradScaler("cpu", enabled=False))
    assert not loop.scaler.is_enabled(), "it is left as it was found"
