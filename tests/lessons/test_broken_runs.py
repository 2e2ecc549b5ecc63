"""A lesson claims nothing that did not happen: its run is broken, and it stays where it is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ampwatch.record import Exponents, Record, StepAnatomy, StepRecord, TensorStats
from tests.lessons.tapes import LESSON, Change, replay

NAMES = tuple(LESSON)


def steps(**fields: Any) -> Change:
    """Other values in the records of steps; functions are given the record."""

    def change(record: Record) -> Record:
        if not isinstance(record, StepRecord):
            return record
        values = {k: v(record) if callable(v) else v for k, v in fields.items()}
        return record._replace(**values)

    return change


def anatomies(**fields: Any) -> Change:
    def change(record: Record) -> Record:
        if not isinstance(record, StepAnatomy):
            return record
        return replace(record, **{k: v(record) if callable(v) else v for k, v in fields.items()})

    return change


def operations(**fields: Any) -> Change:
    return anatomies(operations=lambda a: tuple(replace(each, **fields) for each in a.operations))


def followed(**fields: Callable[[Any], Any]) -> Change:
    def change(anatomy: StepAnatomy) -> Any:
        each = anatomy.followed
        return None if each is None else replace(each, **{k: v(each) for k, v in fields.items()})

    return anatomies(followed=change)


def other_model(anatomy: StepAnatomy) -> Any:
    """Without autocast it has an operation less."""
    return anatomy.operations[:: 1 if anatomy.dtype == "float16" else 2]


def fixed(record: StepRecord) -> float | None:
    """Where it was set to, at first: what is done afterwards has no effect."""
    return 64.0 if record.scaler == "static" else record.scale


def in_bf16(value: float, field: str) -> Callable[[StepRecord], Any]:
    return lambda record: value if record.dtype == "bfloat16" else getattr(record, field)


GONE_TOO_FAR = steps(scale=in_bf16(2.0**-130, "scale"), loss=in_bf16(math.nan, "loss"))
"""As where somebody lets the run go on in fp16 for long: the weights are NaN, in bf16 too."""


def exponents(first: int) -> Change:
    """Gradients that all lie at one power of two."""

    def change(record: Record) -> Record:
        if not isinstance(record, TensorStats):
            return record
        one = Exponents(first, (64,))
        count = len(record.name)
        return replace(
            record,
            exponents=(one,) * count,
            max=(2.0**first,) * count,
            nonfinite=(0,) * count,
        )

    return change


@pytest.mark.parametrize("name", NAMES)
def test_on_its_own_run_a_lesson_comes_to_its_end(name: str, tapes: Path) -> None:
    played = replay(name, tapes)
    assert played.player.done
    assert played.player.error is None
    assert not [text for text in played.claims if re.search(r"\b(unknown|NaN now)\b", text)]


BROKEN: tuple[tuple[str, int, str, Change], ...] = (
    ("autocast", 3, "the run is in fp32", steps(dtype="float32")),
    ("autocast", 3, "nothing is recorded", anatomies(operations=())),
    ("autocast", 4, "products are in fp32", operations(output="float32")),
    ("autocast", 4, "gradients of products are in fp32", operations(gradient="float32")),
    ("autocast", 4, "weights are in fp16", operations(weights=("float16",))),
    ("autocast", 5, "losses are in fp16", operations(output="float16")),
    ("autocast", 8, "it is another model", anatomies(operations=other_model)),
    ("underflow", 3, "the run is in bf16", steps(dtype="bfloat16")),
    ("underflow", 3, "the scaler stays on", steps(scaler="dynamic")),
    ("underflow", 4, "gradients are not 0", steps(grad_norm=1e-9)),
    ("underflow", 5, "the scaler stays off", steps(scaler="off")),
    ("underflow", 7, "gradients are large", exponents(-3)),
    ("underflow", 8, "the loss stays", steps(loss=1e-9)),
    ("overflow", 1, "the run is in bf16", steps(dtype="bfloat16")),
    ("overflow", 1, "the scaler is off", steps(scaler="off")),
    ("overflow", 4, "the step is taken", steps(skipped=False)),
    ("overflow", 4, "targets are as ever", steps(target_gain=1.0)),
    ("overflow", 4, "nothing is inf", anatomies(nonfinite_values=0)),
    ("overflow", 5, "the scale stays", anatomies(scale_after=lambda a: a.scale)),
    ("overflow", 6, "the scaled loss is something else", anatomies(scaled_loss=1.0)),
    ("overflow", 7, "no gradient of a result is inf", operations(gradient_nonfinite=0)),
    ("overflow", 8, "a weight moves", followed(after=lambda f: tuple(w + 1 for w in f.after))),
    ("overflow", 8, "the optimizer is called", anatomies(stepped=True)),
    ("overflow", 9, "the tracker goes on", anatomies(growth_tracker_after=7)),
    ("growth", 2, "the run is in fp32", steps(dtype="float32")),
    ("growth", 2, "the scaler is static", steps(scaler="static")),
    ("growth", 2, "the scale stands still", steps(scale=1024.0)),
    ("growth", 5, "nothing is skipped", steps(skipped=False)),
    ("static", 2, "the run is in bf16", steps(dtype="bfloat16")),
    ("static", 4, "the scaler stays dynamic", steps(scaler="dynamic")),
    ("static", 4, "the scale stays", steps(scale=2.0)),
    ("static", 5, "nobody presses ]", steps(scale=fixed)),
    ("static", 9, "targets are as ever", steps(target_gain=1.0)),
    ("static", 10, "steps are taken", steps(skipped=False)),
    ("bfloat16", 3, "the run stays in fp16", steps(dtype="float16")),
    ("bfloat16", 3, "the scaler is off", steps(scaler="off")),
    ("bfloat16", 5, "steps are skipped", steps(skipped=lambda r: r.dtype == "bfloat16")),
    ("bfloat16", 7, "another weight is followed", followed(name=lambda f: "other")),
    ("bfloat16", 7, "the weights move", followed(after=lambda f: tuple(w + 1 for w in f.after))),
    ("bfloat16", 7, "the weights are fp32", followed(dtype=lambda f: "float32")),
    ("bfloat16", 9, "the losses are the same", steps(loss=0.01)),
    ("clipping", 3, "the scaler is off", steps(scaler="off")),
    ("clipping", 4, "both are clipped alike", steps(clipped_norm=0.1)),
    ("clipping", 5, "the losses are the same", steps(loss=0.5)),
    ("clipping", 7, "the scale stays", steps(scale=65536.0)),
    ("clipping", 9, "the calls are in order", steps(facts=())),
    ("forward", 3, "the run is in bf16", steps(dtype="bfloat16")),
    ("forward", 3, "the scaler is off", steps(scaler="off")),
    ("forward", 3, "the loss is finite", steps(loss=1.0)),
    ("forward", 4, "steps are taken", steps(skipped=False)),
    ("forward", 6, "no operation is found", steps(facts=())),
    ("forward", 7, "the scale has gone too far", GONE_TOO_FAR),
    ("forward", 7, "fp16 it stays", lambda r: steps(dtype="float16")(r)),
    ("eight_bits", 3, "the run is in fp32", steps(dtype="float32")),
    ("eight_bits", 4, "gradients fit e4m3", exponents(2)),
    ("eight_bits", 5, "one scale serves all tensors", exponents(-12)),
)


@pytest.mark.parametrize(
    ("name", "part", "why", "change"),
    BROKEN,
    ids=[f"{n}-{w}".replace(" ", "_") for n, _, w, _ in BROKEN],
)
def test_a_lesson_stays_where_its_run_is_broken(
    name: str, part: int, why: str, change: Change, tapes: Path
) -> None:
    played = replay(name, tapes, change)
    player = played.player
    assert not player.done
    assert player.error is None
    assert player.index + 1 == part
    assert played.trouble  # it says so
    whole = replay(name, tapes).claims
    later = {text for text in whole if text} - set(played.claims)
    assert later  # and what it would have claimed it has not


def test_a_lesson_that_cannot_be_saved_says_that_it_has_to_begin_again(tapes: Path) -> None:
    trouble = replay("forward", tapes, GONE_TOO_FAR).trouble
    assert "1 / scale is inf" in trouble
    assert "Press r" in trouble


def test_every_lesson_is_broken_in_several_ways() -> None:
    for name in NAMES:
        assert sum(name == each for each, *_ in BROKEN) >= 2
