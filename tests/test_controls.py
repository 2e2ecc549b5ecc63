"""The knobs: what the keys ask for, and how requests travel."""

from __future__ import annotations

import pytest

from ampwatch import controls
from ampwatch.controls import KNOBS, Controls, Request
from ampwatch.record import StepRecord


def asked() -> tuple[Controls, list[Request]]:
    sent: list[Request] = []
    return Controls(sent.append), sent


def test_the_names_of_the_knobs_are_the_published_ones() -> None:
    assert [knob.name for knob in KNOBS] == [
        "pause", "step", "dtype", "scaler", "scale", "target_gain", "loss_gain", "inject",
        "explain", "speed", "stop",
    ]  # fmt: skip


def test_lasting_knobs_of_the_training_are_fields_of_the_record() -> None:
    for knob in (controls.DTYPE, controls.SCALER, controls.TARGET_GAIN, controls.LOSS_GAIN):
        assert knob.name in StepRecord._fields


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_a_request_is_read_back(knob: controls.Knob) -> None:
    for value in (None, True, 2.5, "float16"):
        request = Request(knob.name, value)
        assert Request.from_json(request.to_json()) == request


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", "3", '{"knob":"warp","value":1}', '{"knob":"scale"}', '{"knob":[1]}']
)
def test_a_line_that_is_no_request_is_refused(line: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Request.from_json(line)


def test_a_lasting_knob_shows_what_was_asked_until_it_is_answered() -> None:
    knobs, sent = asked()
    knobs.request(controls.DTYPE, "bfloat16")
    assert knobs.value(controls.DTYPE) == "bfloat16"
    assert sent == [Request("dtype", "bfloat16")]
    knobs.answered("dtype", "float16")
    assert knobs.value(controls.DTYPE) == "float16"


def test_a_momentary_knob_keeps_no_value() -> None:
    knobs, sent = asked()
    knobs.request(controls.INJECT)
    assert knobs.value(controls.INJECT) is None
    assert sent == [Request("inject", None)]


def test_choices_come_round() -> None:
    knobs, _ = asked()
    seen = [knobs.cycle(controls.SCALER) for _ in range(4)]
    assert seen == ["dynamic", "static", "off", "dynamic"]


def test_a_choice_follows_the_one_the_run_shows() -> None:
    knobs, _ = asked()
    assert knobs.cycle(controls.DTYPE, "float16") == "bfloat16"


def test_targets_grow_and_shrink_tenfold() -> None:
    knobs, _ = asked()
    for _ in range(3):
        knobs.multiply(controls.TARGET_GAIN, up=True)
    assert knobs.value(controls.TARGET_GAIN) == 1000.0
    knobs.multiply(controls.TARGET_GAIN, up=False)
    assert knobs.value(controls.TARGET_GAIN) == pytest.approx(100.0)


def test_the_scale_is_asked_to_change_by_a_factor() -> None:
    knobs, sent = asked()
    knobs.multiply(controls.SCALE, up=False)
    assert sent == [Request("scale", 0.5)]


def test_answers_of_a_strange_kind_are_ignored() -> None:
    knobs, _ = asked()
    knobs.answered("warp", 9)
    knobs.answered("dtype", ["float16"])
    assert knobs.values == Controls().values


def test_reset_puts_every_knob_to_neutral() -> None:
    knobs, _ = asked()
    knobs.request(controls.SCALER, "off")
    knobs.request(controls.PAUSE, True)
    knobs.reset()
    assert knobs.values == {knob.name: knob.neutral for knob in KNOBS}
