"""What happened, in words a student understands, and how the list of it stays short."""

from __future__ import annotations

import math

import pytest

from ampwatch.record import Notice, RunEnd, RunInfo, ScalerInfo, StepRecord
from ampwatch.run import Run
from ampwatch.run.events import Event, EventLog

INFO = RunInfo(
    "toy",
    0.0,
    tensors=tuple(f"net.{n}.weight" for n in range(8)),
    scaler=ScalerInfo("dynamic", 65536.0, 2.0, 0.5, 200),
)


def step(
    number: int, scale: float | None = 65536.0, skipped: bool = False, **more: object
) -> StepRecord:
    fields: dict[str, object] = {
        "loss": 1.0,
        "dtype": "float16",
        "scaler": "dynamic",
        "growth_tracker": 0,
        "nonfinite_tensors": 3 if skipped else 0,
        "origin": "net.2.weight" if skipped else None,
    }
    return StepRecord(number, number * 0.1, scale=scale, skipped=skipped, **{**fields, **more})  # type: ignore[arg-type]


def told(*records: StepRecord | RunInfo | RunEnd | Notice) -> list[Event]:
    run = Run()
    for record in (INFO, *records):
        run.add(record)
    return list(run.events)


def texts(*records: StepRecord | RunInfo | RunEnd | Notice) -> list[str]:
    return [event.text for event in told(*records)]


def test_a_skip_names_the_tensors_the_origin_and_the_scale() -> None:
    assert texts(step(11), step(12, skipped=True), step(13, 32768.0)) == [
        "step 12 skipped: 3 of 8 gradient tensors held inf or NaN, first in net.2.weight "
        "(nearest the loss); made in backward; the scale falls from 2^16 to 2^15"
    ]


def test_a_skip_is_told_in_full_before_the_next_step_is_known() -> None:
    assert texts(step(12, skipped=True))[0].endswith("the scale falls from 2^16 to 2^15")


def test_skips_in_a_row_are_one_event() -> None:
    scales = [65536.0 / 2**n for n in range(10)]
    records = [step(n, scale, skipped=True) for n, scale in enumerate(scales)]
    (event,) = told(*records, step(10, 64.0))
    assert (event.step, event.last_step, event.count, event.kind) == (0, 9, 10, "skip")
    assert event.text.startswith("steps 0 to 9 skipped (10 in a row): ")
    assert event.text.endswith("; the scale falls from 2^16 to 2^6")


def test_skips_apart_are_several_events() -> None:
    events = told(step(1, skipped=True), step(2, 32768.0), step(3, 32768.0, skipped=True))
    assert [event.step for event in events] == [1, 3]


def test_a_scale_that_does_not_fall_is_said_to_stay() -> None:
    assert texts(step(1, skipped=True), step(2))[0].endswith("; the scale stays at 2^16")


def test_a_static_scale_stays() -> None:
    text = texts(step(1, skipped=True, scaler="static"))[0]
    assert text.endswith("; the scale stays at 2^16")


def test_a_backoff_factor_of_the_run_is_used() -> None:
    run = Run()
    run.add(RunInfo("toy", 0.0, scaler=ScalerInfo("dynamic", 65536.0, 2.0, 0.25, 200)))
    run.add(step(1, skipped=True))
    latest = run.events.latest
    assert latest is not None
    assert latest.text.endswith("the scale falls from 2^16 to 2^14")


@pytest.mark.parametrize(("loss", "word"), [(math.nan, "NaN"), (math.inf, "inf")])
def test_a_loss_that_is_bad_already_is_the_forward_pass(loss: float, word: str) -> None:
    (event,) = told(step(4, skipped=True, loss=loss))
    assert f"the loss itself was {word}: the forward pass, not the scale" in event.text
    assert event.severity == "error"


def test_a_finite_loss_blames_no_forward_pass() -> None:
    assert "forward" not in texts(step(4, skipped=True))[0]


def test_with_several_optimizers_a_skip_says_whose() -> None:
    records = [step(1, optimizer="Adam"), step(1, skipped=True, optimizer="SGD 2")]
    assert texts(*records)[0].startswith("step 1 skipped for SGD 2: 3 of 8 ")


def test_a_skip_without_tensor_counts_is_told_all_the_same() -> None:
    text = texts(step(4, skipped=True, nonfinite_tensors=None, origin=None))[0]
    assert text.startswith("step 4 skipped: the gradients held inf or NaN; ")


def test_growth_says_after_how_many_steps() -> None:
    records = [step(n, growth_tracker=n) for n in range(200)]
    assert texts(*records, step(200, 131072.0)) == [
        "the scale doubled to 2^17 after 200 steps without overflow"
    ]


def test_growth_again_and_again_is_one_event() -> None:
    info = RunInfo("toy", 0.0, scaler=ScalerInfo("dynamic", 1.0, 2.0, 0.5, 1))
    events = told(info, *(step(n, 2.0**n) for n in range(21)))
    assert [event.text for event in events] == [
        "the scale doubled 20 times without overflow between, now 2^20"
    ]
    assert (events[0].step, events[0].last_step, events[0].count) == (1, 20, 20)


def test_a_skip_after_growth_says_so() -> None:
    records = [step(n, growth_tracker=n) for n in range(200)]
    text = texts(*records, step(200, 131072.0, skipped=True))[-1]
    assert "; the scale had just grown; the scale falls from 2^17 to 2^16" in text


def test_a_scale_doubled_by_hand_is_no_growth() -> None:
    """update(new_scale) leaves the growth tracker alone; growth puts it back to 0."""
    events = told(step(50, growth_tracker=50), step(51, 131072.0, growth_tracker=51))
    assert [(e.kind, e.text) for e in events] == [
        ("scale-set", "the scale was set from 2^16 to 2^17")
    ]


def test_a_scale_doubled_by_hand_too_early_is_no_growth() -> None:
    events = told(step(50, growth_tracker=50), step(51, 131072.0, growth_tracker=0))
    assert [event.kind for event in events] == ["scale-set"]


def test_a_scale_halved_by_hand_is_no_skip() -> None:
    events = told(step(50), step(51, 32768.0))
    assert [event.kind for event in events] == ["scale-set"]


def test_a_new_scaler_is_recognised_by_its_initial_value() -> None:
    text = texts(step(50, 128.0), step(51, 65536.0))[0]
    assert text == "the scale was set from 2^7 to 2^16, its initial value"


def test_targets_enlarged_by_key() -> None:
    assert texts(step(1, target_gain=1.0), step(2, target_gain=10.0), step(3, target_gain=1.0)) == [
        "targets enlarged to ×10 by key",
        "targets back to ×1 by key",
    ]


def test_the_loss_reduced_by_key() -> None:
    assert texts(step(1), step(2, loss_gain=0.1)) == ["loss reduced to ×0.1 by key"]


def test_switching_dtype_and_scaler() -> None:
    events = told(step(1), step(2, dtype="bfloat16", scaler="off"))
    assert [(event.kind, event.text) for event in events] == [
        ("dtype", "autocast now lowers to bfloat16 (it was float16)"),
        ("scaler", "the scaler is now off (it was dynamic)"),
    ]


def test_a_scaler_that_is_switched_off_and_on_sets_no_scale() -> None:
    events = told(step(1), step(2, 1.0, scaler="off"), step(3))
    assert [event.kind for event in events] == ["scaler", "scaler"]


def test_a_key_seen_from_two_optimizers_is_told_once() -> None:
    records = [
        step(n, optimizer=name, target_gain=gain)
        for n, gain in ((1, 1.0), (2, 10.0))
        for name in ("Adam", "Adam 2")
    ]
    assert texts(*records) == ["targets enlarged to ×10 by key"]


def test_a_bad_loss_without_a_scaler_reaches_the_weights() -> None:
    records = [
        StepRecord(n, n * 0.1, loss=math.nan, dtype="float32", nonfinite_tensors=8)
        for n in range(5, 9)
    ]
    (event,) = told(*records)
    assert (event.kind, event.severity, event.count) == ("nonfinite-loss", "error", 4)
    assert event.text == (
        "step 5: the loss is NaN: the forward pass, not the scale; no scaler watches over this "
        "step, so the weights take it in; in all 4 steps in a row"
    )


def test_bad_gradients_without_a_scaler_reach_the_weights() -> None:
    record = StepRecord(5, 0.5, loss=1.0, nonfinite_tensors=1, origin="net.0.weight")
    (event,) = told(record)
    assert event.kind == "nonfinite-gradients"
    assert event.text.startswith("step 5: 1 of 8 gradient tensors held inf or NaN, first in net.0")


def test_notices_become_events_and_empty_ones_do_not() -> None:
    events = told(step(3), Notice("saved"), Notice("", "pause", True), Notice("no", refused=True))
    assert [(event.step, event.text, event.severity) for event in events] == [
        (3, "saved", "info"),
        (3, "no", "warning"),
    ]


@pytest.mark.parametrize(
    ("end", "kind", "text"),
    [
        (RunEnd("finished", 400), "finished", "finished after 400 steps"),
        (RunEnd("stopped", 1), "stopped", "stopped after 1 step"),
        (
            RunEnd("failed", 1200, "ValueError: x"),
            "failed",
            "the training failed after 1,200 steps: ValueError: x",
        ),
    ],
)
def test_how_a_run_ended(end: RunEnd, kind: str, text: str) -> None:
    (event,) = told(end)
    assert (event.kind, event.text) == (kind, text)


def event(number: int) -> Event:
    return Event(number, "notice", "info", f"number {number}")


def test_the_list_keeps_the_latest() -> None:
    log = EventLog(most=3)
    for number in range(5):
        log.add(event(number))
    assert [item.step for item in log.items] == [2, 3, 4]
    assert log.dropped == 2
    assert log.version == 5


def test_an_event_is_replaced_where_it_stands() -> None:
    log = EventLog()
    first, second, longer = event(1), event(2), event(11)
    log.add(first)
    log.add(second)
    log.add(longer, instead_of=first)
    assert log.items == (longer, second)


def test_an_event_that_is_gone_is_not_replaced_but_added() -> None:
    log = EventLog(most=2)
    old = event(1)
    log.add(old)
    log.add(event(2))
    log.add(event(3))
    log.add(event(4), instead_of=old)
    assert [item.step for item in log.items] == [3, 4]


def test_draining_gives_what_is_new_or_has_grown_once() -> None:
    log = EventLog()
    first = event(1)
    log.add(first)
    assert log.drain() == [first]
    assert log.drain() == []
    grown = event(11)
    log.add(grown, instead_of=first)
    again = event(12)
    log.add(again, instead_of=grown)
    assert log.drain() == [again]
    assert log.items == (again,)
