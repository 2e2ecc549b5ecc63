"""Where inf and NaN began, from a record alone, and in words."""

from __future__ import annotations

import math

import pytest

from ampwatch.record import StepRecord
from ampwatch.record.facts import fact
from ampwatch.run import Run
from ampwatch.run.origins import Origin, began, origin_of


def skipped(loss: float | None = 1.0, *facts: str, values: int | None = 7) -> StepRecord:
    return StepRecord(
        *(3, 0.1, loss),
        scale=2.0**16,
        skipped=True,
        nonfinite_tensors=2,
        nonfinite_values=values,
        origin="head.weight",
        scaler="dynamic",
        facts=facts,
    )


SQRT = fact("backward-origin", operation="SqrtBackward0", module="body", place="after", kind="nan")
PRODUCT = fact("backward-origin", operation="AddmmBackward0", module="head", kind="overflow")


@pytest.mark.parametrize(
    ("record", "expected", "words"),
    [
        (StepRecord(3, 0.1, 1.0, nonfinite_tensors=0, skipped=False), None, ""),
        (skipped(None), None, ""),  # what the loss was is not known
        (skipped(), Origin("backward"), "made in backward"),
        (
            skipped(1.0, SQRT),
            Origin("backward", "SqrtBackward0 after body"),
            "made in backward, by SqrtBackward0 after body",
        ),
        (
            skipped(None, PRODUCT),
            Origin("backward", "AddmmBackward0 in head"),
            "made in backward, by AddmmBackward0 in head",
        ),
        (skipped(math.nan), Origin("forward"), "the forward pass, not the scale"),
        (
            skipped(math.inf, fact("forward-overflow", op="mul", after="body", largest="3e4")),
            Origin("forward", "mul after body"),
            "the forward pass (mul after body), not the scale",
        ),
        (
            skipped(math.inf, fact("diverged", op="mse_loss", after="head")),
            Origin("loss", "mse_loss after head"),
            "the loss function (mse_loss after head), not the scale",
        ),
        (
            skipped(math.nan, fact("nonfinite-input", kind="NaN", name="x")),
            Origin("input", "x"),
            "the batch (x), not the scale",
        ),
        (
            skipped(math.nan, fact("weights-nonfinite", tensor="body.weight")),
            Origin("weights", "body.weight"),
            "the weights (body.weight), not the scale",
        ),
    ],
)
def test_where_it_began(record: StepRecord, expected: Origin | None, words: str) -> None:
    found = origin_of(record)
    assert found == expected
    if found is not None:
        assert began(found) == words


def test_a_skip_says_how_much_followed_and_where_it_began() -> None:
    run = Run()
    run.add(skipped())
    assert [event.text for event in run.events] == [
        "step 3 skipped: 2 gradient tensors held inf or NaN (7 values), first in head.weight "
        "(nearest the loss); made in backward; the scale falls from 2^16 to 2^15"
    ]
    run.add(skipped(1.0, SQRT)._replace(step=4, scale=2.0**15, nonfinite_values=1200))
    (event,) = run.events
    assert event.text.startswith("steps 3 to 4 skipped (2 in a row): 2 gradient tensors held")
    assert "(1,200 values)" in event.text
    assert "; made in backward, by SqrtBackward0 after body;" in event.text


def test_a_loss_that_is_not_finite_names_its_operation() -> None:
    run = Run()
    run.add(skipped(math.inf, fact("forward-overflow", op="mul", after="body")))
    (event,) = run.events
    assert "; the loss itself was inf: the forward pass (mul after body), not the scale" in (
        event.text
    )
