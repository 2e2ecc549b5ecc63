"""A run made from records: counts, series, rates, marks, in memory that does not grow."""

from __future__ import annotations

import math
import random
import tracemalloc

import pytest

from ampwatch.errors import RecordError
from ampwatch.record import (
    Record,
    RunEnd,
    RunInfo,
    ScalerInfo,
    StepRecord,
    TensorStats,
    from_json,
    to_json,
)
from ampwatch.rules import RULES
from ampwatch.run import Run
from ampwatch.run.series import MOST_OPTIMIZERS, MOST_SERIES
from ampwatch.run.spans import MOST_KEYS

INFO = RunInfo("toy", 0.0, scaler=ScalerInfo("dynamic", 1024.0, 2.0, 0.5, 100))


def run_of(*records: Record) -> Run:
    run = Run()
    for record in records:
        run.add(record)
    return run


def step(number: int, **more: object) -> StepRecord:
    fields = {"scale": 1024.0, "skipped": False, "dtype": "float16", "scaler": "dynamic", **more}
    return StepRecord(number, number * 0.01, **fields)  # type: ignore[arg-type]


def skip(number: int, **more: object) -> StepRecord:
    fields = {"grad_norm": math.inf, "nonfinite_tensors": 2, "origin": "w", **more}
    return step(number, skipped=True, **fields)


def test_a_run_without_steps() -> None:
    run = run_of(INFO)
    assert (run.steps, run.skipped, list(run.skipped_steps), run.marks) == (0, 0, [], ())
    for nothing in (
        run.steps_per_second(),
        run.rate(),
        run.steps_until_growth(),
        run.overhead(),
        run.final_scale(),
    ):
        assert nothing is None
    assert run.summary()["steps"] == 0


def test_steps_and_skips_are_counted() -> None:
    run = run_of(INFO, step(0), skip(1), skip(2, scale=512.0), step(3, scale=256.0))
    assert run.steps == 4
    assert (run.skipped, list(run.skipped_steps)) == (2, [1, 2])
    assert run.nonfinite_steps == 2
    assert run.origins == {"w": 2}


def test_two_optimizers_share_their_steps() -> None:
    run = Run()
    for number in range(10):
        run.add(step(number, optimizer="Adam", grad_norm=1.0))
        second = skip if number in (3, 7) else step
        run.add(second(number, optimizer="SGD 2", **({} if second is skip else {"grad_norm": 5.0})))
    assert run.steps == 10
    assert (run.skipped, list(run.skipped_steps)) == (2, [3, 7])
    assert run.skipped_by == {"Adam": 0, "SGD 2": 2}
    assert run.optimizers == ["Adam", "SGD 2"]
    assert set(run.series) >= {"grad_norm", "grad_norm:SGD 2", "scale"}
    assert [label for label, _ in run.named("grad_norm")] == ["Adam", "SGD 2"]
    assert [label for label, _ in run.named("scale")] == ["scale"]


def test_a_step_skipped_by_both_optimizers_is_one_skipped_step() -> None:
    run = run_of(skip(4, optimizer="A"), skip(4, optimizer="B"))
    assert (run.skipped, list(run.skipped_steps)) == (1, [4])
    assert run.skipped_by == {"A": 1, "B": 1}
    assert run.nonfinite_steps == 1


def test_one_optimizer_skipping_does_not_hide_behind_the_other() -> None:
    """The scale falls at every step although one of the two optimizers always steps."""
    run = Run()
    for number in range(12):
        scale = 2.0 ** (10 - number)
        run.add(step(number, optimizer="A", scale=scale))
        run.add(skip(number, optimizer="B", scale=scale))
    burst = run.bursts.open
    assert burst is not None
    assert (burst.first, burst.count) == (0, 12)


def test_the_norm_of_a_skipped_step_stays_out_of_the_figures() -> None:
    run = run_of(step(0, grad_norm=1.0), skip(1), step(2, grad_norm=3.0))
    assert run.series["grad_norm"].limits(0, 2) == (1.0, 3.0)


def test_metrics_are_series() -> None:
    run = run_of(step(0, metrics={"accuracy": 0.25}), step(5, metrics={"accuracy": 0.75}))
    assert run.series["metrics.accuracy"].last == 0.75
    assert run.series["metrics.accuracy"].limits(0, 5) == (0.25, 0.75)


def test_steps_until_growth() -> None:
    """torch grows the scale in the update in which the tracker reaches the interval."""
    assert run_of(INFO, step(0, growth_tracker=0)).steps_until_growth() == 99
    assert run_of(INFO, step(98, growth_tracker=98)).steps_until_growth() == 1
    assert run_of(INFO, step(99, growth_tracker=99)).steps_until_growth() == 100
    assert run_of(INFO, skip(50, growth_tracker=50)).steps_until_growth() == 100
    assert run_of(INFO, step(0, growth_tracker=0, scaler="static")).steps_until_growth() is None
    assert run_of(step(0, growth_tracker=0)).steps_until_growth() is None


def test_the_final_scale_is_the_one_after_the_last_update() -> None:
    assert run_of(INFO, step(5, growth_tracker=5)).final_scale() == 1024.0
    assert run_of(INFO, step(99, growth_tracker=99)).final_scale() == 2048.0
    assert run_of(INFO, skip(5, growth_tracker=5)).final_scale() == 512.0
    assert run_of(INFO, skip(5, scaler="static")).final_scale() == 1024.0


def test_the_rate_is_over_the_last_seconds() -> None:
    run = Run()
    for number in range(1000):  # 100 steps a second
        run.add(StepRecord(number, number / 100))
    for number in range(100):  # then 10 a second, for ten seconds
        run.add(StepRecord(1000 + number, 10 + number / 10))
    recent, whole = run.steps_per_second(), run.rate()
    assert recent == pytest.approx(10.0)
    assert whole == pytest.approx(1099 / 19.9)


def test_overhead_is_weighted_by_time() -> None:
    run = run_of(
        StepRecord(0, 0.0, overhead=0.9),
        StepRecord(1, 1.0, overhead=0.01),
        StepRecord(2, 4.0, overhead=0.03),
    )
    assert run.overhead() == pytest.approx((1 * 0.01 + 3 * 0.03) / 4)


def test_tensors_and_end_are_kept() -> None:
    stats = TensorStats(3, ("a",), (1.0,), (1.0,), (0,), (0,))
    end = RunEnd("finished", 4)
    run = run_of(INFO, step(3), stats, end)
    assert (run.info, run.tensors, run.end) == (INFO, stats, end)


def test_records_from_the_past_are_counted_and_left_out() -> None:
    run = run_of(step(5), step(4), step(6))
    assert (run.steps, run.records, run.disordered) == (7, 2, 1)


def test_changes_by_key_and_skips_are_marks_in_order() -> None:
    run = run_of(
        step(0, target_gain=1.0), skip(1, target_gain=10.0), step(2, scale=512.0, target_gain=10.0)
    )
    assert [(mark.step, mark.kind) for mark in run.marks] == [(1, "skip"), (1, "knob")]
    assert [mark.text for mark in run.marks if mark.kind == "knob"] == [
        "targets enlarged to ×10 by key"
    ]


def test_a_scale_set_by_hand_is_a_mark() -> None:
    run = run_of(step(0), step(1, scale=256.0))
    assert [(mark.step, mark.kind, mark.text) for mark in run.marks] == [(1, "knob", "scale 2^8")]


def test_marks_of_a_window_are_exact() -> None:
    run = Run()
    for number in range(100_000):
        run.add(skip(number) if number % 3 == 0 else step(number))
    window = run.marks_between(50_000, 50_999)
    assert [mark.step for mark in window] == [n for n in range(50_000, 51_000) if n % 3 == 0]


def test_thinned_marks_leave_no_column_without_one() -> None:
    run = Run()
    for number in range(100_000):
        run.add(skip(number) if number % 3 == 0 else step(number))
    marks = run.marks
    assert len(marks) <= 1024
    columns = {mark.step * 320 // 100_000 for mark in marks}
    assert columns == set(range(320))


def test_the_summary_has_what_json_promises() -> None:
    run = run_of(
        INFO,
        step(0, loss=1.0, overhead=0.01),
        skip(1, loss=0.5, overhead=0.01),
        RunEnd("finished", 2),
    )
    summary = run.summary()
    assert set(summary) >= {
        "steps", "skipped", "skipped_steps", "final_scale", "final_loss", "nonfinite_steps",
        "origins", "dtype", "scaler", "status", "overhead", "rate", "error",
    }  # fmt: skip
    assert (summary["steps"], summary["skipped"], summary["skipped_steps"]) == (2, 1, [1])
    assert (summary["final_scale"], summary["final_loss"]) == (512.0, 0.5)
    assert (summary["status"], summary["dtype"], summary["scaler"]) == (
        "finished",
        "float16",
        "dynamic",
    )


def test_memory_does_not_grow_with_steps() -> None:
    run = Run()
    run.add(INFO)

    def take(first: int, last: int) -> None:
        for number in range(first, last):
            run.add(
                step(number, loss=1.0 / (number + 1), grad_norm=2.0, metrics={"accuracy": 0.5})
                if number % 25
                else skip(number, loss=1.0)
            )

    tracemalloc.start()
    try:
        take(0, 30_000)
        before, _ = tracemalloc.get_traced_memory()
        take(30_000, 90_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 2,400 more skipped steps are 19 kB, a series that is first folded 70 kB; 60,000 records that
    # were kept would be 20 MB.
    assert after - before < 200_000


def test_made_up_names_do_not_fill_the_memory() -> None:
    run = Run()
    for number in range(2000):
        run.add(
            step(
                number,
                optimizer=f"Adam {number}",
                grad_norm=1.0,
                metrics={f"m{number}": 1.0},
                facts=(f"f{number}",),
                dtype=f"d{number}",
            )
        )
    assert len(run.optimizers) <= MOST_OPTIMIZERS
    assert len(run.series) <= MOST_SERIES + 8 * MOST_OPTIMIZERS
    assert len(run.facts) <= MOST_KEYS
    assert len(run.modes) <= MOST_KEYS
    assert len(run.events) <= 1000


def test_any_values_at_all_are_taken_in() -> None:
    """Random records with every kind of number in every field, garbled lines among them."""
    choose = random.Random(3)
    numbers = [0.0, -0.0, 1.0, -1.0, 5e-324, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan, None]
    integers = [0, 1, 2, 10**6, 2**62, None]
    words = ["", "a", "dynamic", "static", "off", "float16", "\x1b[31m", "漢", None]
    run = Run()
    number = 0
    for _ in range(3000):
        number += choose.choice([0, 0, 1, 1, 1, 2, 1000])
        record = StepRecord(
            number if choose.random() > 0.001 else 2**62,
            choose.choice([0.0, number * 0.1, -1.0, 1e300]),
            choose.choice(numbers),
            choose.choice(integers),
            choose.choice(numbers),
            choose.choice(integers),
            choose.choice([True, False, None]),
            choose.choice(numbers),
            choose.choice(numbers),
            choose.choice(numbers),
            choose.choice(integers),
            choose.choice(integers),
            *choose.choices(words, k=3),
            choose.choice(numbers),
            choose.choice(words),
            choose.choice(numbers),
            choose.choice(numbers),
            choose.choice(numbers),
            ("fact",),
            {"m": choose.choice(numbers[:-1])},
        )
        try:
            run.add(from_json(to_json(record)))
        except RecordError as error:
            pytest.fail(f"{record}: {error}")
        if record.step == 2**62:
            assert run.steps == 2**62 + 1
            run = Run()
        run.summary()
        run.steps_per_second()
        run.steps_until_growth()
        for rule in RULES:
            list(rule.check(run))
    assert run.records > 0
