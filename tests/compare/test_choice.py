"""Verdicts, the choice and the sentences, on rows whose figures are stated here."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ampwatch.compare import VARIANT_BY_NAME
from ampwatch.compare.choice import Choice, choose
from ampwatch.compare.figures import FAILED, FINISHED, IMPOSSIBLE, STOPPED, Row
from ampwatch.compare.machine import Machine
from ampwatch.compare.notes import machine_notes, memory_note, row_notes, time_note
from ampwatch.compare.start import start_note
from ampwatch.compare.verdict import verdicts
from ampwatch.rules import Finding

START, FINAL = 1.0, 0.1


def row(name: str, ratio: float | None = 1.0, memory: float = 1.0, **known: Any) -> Row:
    final = known.pop("final_loss", FINAL)
    start = known.pop("start_loss", START)
    return Row(
        VARIANT_BY_NAME[name],
        known.pop("status", FINISHED),
        steps=known.pop("steps", 200),
        seconds=None if ratio is None else ratio / 100,
        ratio=ratio,
        ratio_low=known.pop("ratio_low", ratio),
        ratio_high=known.pop("ratio_high", ratio),
        memory=1000 * memory,
        memory_kind="saved",
        memory_ratio=memory,
        first_loss=known.pop("first_loss", start),
        start_loss=start,
        final_loss=final,
        difference=final - FINAL,
        **known,
    )


def chosen(*rows: Row) -> Choice:
    return choose(rows, verdicts(rows))


def words(*rows: Row) -> list[str]:
    return [verdict.words for verdict in verdicts(rows)]


# -- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("final", "verdict"),
    [
        (0.1, "as fp32"),
        (0.05, "as fp32"),
        (0.18, "as fp32"),  # 0.82 of the 0.9 that fp32 came, which is 0.911
        (0.2001, "learned less"),  # more than twice fp32's
        (0.5, "learned less"),
        (0.9, "learned nothing"),
        (1.1, "learned nothing"),
        (2.0, "diverged"),  # further up than fp32 went down
        (math.nan, "diverged"),
        (math.inf, "diverged"),
    ],
)
def test_a_verdict_is_measured_by_how_far_fp32_came(final: float, verdict: str) -> None:
    assert words(row("fp32"), row("bf16", final_loss=final)) == ["baseline", verdict]


def test_who_skips_every_step_or_has_no_gradients_has_learned_nothing() -> None:
    skipping = row("fp16-static", skipped=190)
    empty = row("fp16-none", flushed=0.95)
    assert words(row("fp32"), skipping, empty)[1:] == ["learned nothing", "learned nothing"]


def test_a_baseline_that_does_not_learn_tells_nothing() -> None:
    still = row("fp32", final_loss=0.99)
    assert words(still, row("bf16")) == ["not clear", "not clear"]
    assert chosen(still, row("bf16")).variant is None
    assert "does not fall in fp32" in chosen(still, row("bf16")).sentence


def test_what_differs_from_batch_to_batch_is_no_difference() -> None:
    noisy = row("fp32", spread=0.15)
    assert words(noisy, row("bf16", final_loss=0.24)) == ["baseline", "as fp32"]
    assert words(noisy, row("bf16", final_loss=0.26)) == ["baseline", "learned less"]
    assert words(row("fp32", spread=0.95), row("bf16"))[0] == "not clear"


def test_a_loss_may_be_negative() -> None:
    falling = row("fp32", start_loss=-1.0, first_loss=-1.0, final_loss=-5.0)
    same = row("bf16", start_loss=-1.0, final_loss=-4.9)
    nothing = row("fp16-none", start_loss=-1.0, final_loss=-1.0)
    assert words(falling, same, nothing) == ["baseline", "as fp32", "learned nothing"]


def test_what_did_not_run_to_its_end_says_so() -> None:
    assert words(
        row("fp32"),
        row("bf16", status=FAILED, error="out of memory"),
        row("fp16-dynamic", status=IMPOSSIBLE),
        row("fp16-static", status=STOPPED),
        row("fp16-none", steps=0),
    )[1:] == ["failed", "not possible", "stopped", "no step"]


# -- the choice -----------------------------------------------------------------------------------


def test_the_fastest_that_learns_is_chosen() -> None:
    choice = chosen(
        row("fp32"), row("bf16", 0.6, 0.55), row("fp16-dynamic", 0.45, 0.55), row("fp16-none", 0.4)
    )
    assert choice.variant == "fp16-dynamic"
    assert choice.sentence == (
        "Choose fp16 with a dynamic scaler on this machine: it learns as fp32 does and takes "
        "0.45 of its time a step and 0.55 of its memory."
    )


def test_of_two_that_are_as_fast_the_one_without_a_scaler_is_chosen() -> None:
    choice = chosen(row("fp32"), row("bf16", 0.46, 0.55), row("fp16-dynamic", 0.45, 0.55))
    assert choice.variant == "bf16"
    assert choice.sentence.endswith("its memory, without a scaler.")


def test_who_learns_nothing_is_not_chosen_however_fast() -> None:
    choice = chosen(
        row("fp32"), row("bf16", 0.8, 0.6), row("fp16-dynamic", 0.3, final_loss=math.nan)
    )
    assert choice.variant == "bf16"
    assert choice.sentence.endswith("; fp16 with a dynamic scaler diverged.")


def test_no_scaler_and_a_static_one_are_never_recommended() -> None:
    rows = [row("fp32"), row("bf16", 1.5), row("fp16-static", 0.3), row("fp16-none", 0.3)]
    assert chosen(*rows).variant == "fp32"


def test_a_difference_within_the_noise_is_none() -> None:
    noisy = row("bf16", 0.9, ratio_high=1.2)
    assert chosen(row("fp32"), noisy).variant == "fp32"


def test_at_equal_time_less_memory_is_chosen() -> None:
    choice = chosen(row("fp32"), row("bf16", 1.01, 0.55), row("fp16-dynamic", 2.0, 0.55))
    assert choice.variant == "bf16"
    assert "in its time and 0.55 of its memory" in choice.sentence


def test_where_all_are_slower_fp32_is_chosen_and_memory_is_not_forgotten() -> None:
    choice = chosen(
        row("fp32"),
        row("bf16", 1.4, 0.55),
        row("fp16-dynamic", 33.4, 0.55),
        row("fp16-none", 33.0, final_loss=1.0),
    )
    assert choice == Choice(
        "fp32",
        "Choose fp32 on this machine: a step takes 1.4 times as long in bf16 and 33 times as long "
        "in fp16 with a dynamic scaler; if memory is short, bf16 needs 0.55 of fp32's; fp16 "
        "without a scaler learned nothing.",
    )


def test_without_fp32_there_is_no_choice() -> None:
    failed = row("fp32", status=FAILED, error="x")
    choice = chosen(failed, row("bf16", 0.5))
    assert choice == Choice(None, "No choice: fp32, which the others are measured by, failed.")
    stopped = chosen(row("fp32", status=STOPPED), row("bf16", 0.5, status=STOPPED))
    assert stopped.sentence.endswith("was stopped.")


def test_without_times_there_is_no_choice() -> None:
    choice = chosen(row("fp32", None), row("bf16", None))
    assert choice.variant is None
    assert choice.sentence == "No choice: 200 steps are too few to time them."


@pytest.mark.parametrize(
    ("low", "high", "unsure"),
    [
        (0.43, 1.77, True),
        (0.3, 0.6, True),
        (0.95, 1.25, False),
        (0.5, 0.7, False),
        (1.2, 4.0, False),  # slower, whatever it is by how much
    ],
)
def test_where_the_rounds_differ_widely_nothing_is_chosen_by_time(
    low: float, high: float, unsure: bool
) -> None:
    shaken = row("bf16", (low + high) / 2, 0.5, ratio_low=low, ratio_high=high)
    choice = chosen(row("fp32"), shaken, row("fp16-dynamic", 2.0, 0.5))
    assert (choice.variant is None) is unsure
    assert choice.sentence.startswith("No choice: step times vary too much") is unsure
    assert bool(list(time_note([row("fp32"), shaken]))) is unsure


def test_how_far_the_rounds_differ_is_told() -> None:
    rows = [
        row("fp32"),
        row("bf16", 0.9, ratio_low=0.054, ratio_high=1.77),
        row("fp16-none", 2.0, ratio_low=0.26, ratio_high=14.9),
    ]
    assert list(time_note(rows)) == [
        "Times are unsure: half of the ratios to fp32 lie in 0.05 to 1.8 (bf16); 0.26 to 15 (fp16, "
        "no scaler)."
    ]


def test_one_that_is_surely_faster_is_chosen_beside_one_that_is_not_sure() -> None:
    shaken = row("bf16", 0.9, ratio_low=0.5, ratio_high=1.5)
    assert chosen(row("fp32"), shaken, row("fp16-dynamic", 0.5)).variant == "fp16-dynamic"


def test_what_was_not_run_is_not_judged() -> None:
    for rows in ([row("fp32")], [row("fp32"), row("fp16-none", 0.5)]):
        choice = chosen(*rows)
        assert choice == Choice(
            None, "No choice: neither bf16 nor fp16 with a dynamic scaler was run beside fp32."
        )


def test_what_could_not_be_run_is_no_slower_learner() -> None:
    gone = row("fp16-dynamic", status=IMPOSSIBLE, error="no scaler")
    assert chosen(row("fp32"), gone).sentence == (
        "Choose fp32 on this machine: none of the others ran to its end."
    )
    diverged = row("bf16", final_loss=math.nan)
    assert chosen(row("fp32"), diverged, gone).sentence == (
        "Choose fp32 on this machine: none of the others learns as it does; bf16 diverged."
    )


# -- the sentences --------------------------------------------------------------------------------


def test_a_machine_that_is_slow_in_a_format_is_named_with_what_was_measured() -> None:
    machine = Machine("cpu", "x", {"float16": 0.03125, "bfloat16": 2.0})
    slow, wasted = machine_notes(machine, [row("fp32"), row("bf16", 1.4), row("fp16-none", 2.0)])
    assert slow == (
        "This CPU is slow in fp16: a matrix product takes 32 times as long as in fp32 (measured)."
    )
    assert wasted.startswith("This CPU multiplies matrices 2 times as fast in bf16 as in fp32")


def test_a_machine_that_is_fast_where_the_loop_gains_needs_no_words() -> None:
    machine = Machine("cuda:0", "x", {"float16": 8.0, "bfloat16": 8.0})
    assert not list(machine_notes(machine, [row("bf16", 0.5), row("fp16-none", 0.5)]))
    assert not list(machine_notes(Machine("cpu", "x", {"float16": 1.0}), [row("fp16-none")]))
    assert not list(machine_notes(None, []))


def test_runs_that_start_alike_within_the_rounding_of_their_format() -> None:
    alike = [
        row("fp32", first_loss=1.0),
        row("bf16", first_loss=1.01),
        row("fp16-dynamic", first_loss=1.001),
        row("fp16-none", first_loss=1.001),
    ]
    assert start_note(alike) is None
    assert words(*alike)[1] == "as fp32"


@pytest.mark.parametrize(
    ("name", "loss"), [("bf16", 1.2), ("fp16-none", 1.02)], ids=["bf16", "fp16"]
)
def test_runs_that_do_not_start_alike_are_told(name: str, loss: float) -> None:
    apart = [row("fp32", first_loss=1.0), row(name, 0.5, first_loss=loss)]
    note = start_note(apart)
    assert note is not None
    assert "did not start alike" in note
    assert f"{loss:g}" in note
    assert words(*apart) == ["not clear", "not clear"]
    assert chosen(*apart) == Choice(None, "No choice: the runs did not start alike.")


def test_in_one_format_the_start_is_the_same_to_the_last_bits() -> None:
    rows = [row("fp16-dynamic", first_loss=1.0), row("fp16-none", first_loss=1.001)]
    assert start_note(rows) is not None
    assert start_note([*rows[:1], row("fp16-none", first_loss=1.0 + 1e-6)]) is None


def test_the_reason_stands_once_for_all_it_applies_to() -> None:
    finding = Finding("gradient-underflow", "warning", "half of it is 0")
    rows = [
        row("fp32", findings=[finding]),  # it learns: no reason is needed
        row("bf16", status=IMPOSSIBLE, error="no scaler"),
        row("fp16-static", status=IMPOSSIBLE, error="no scaler"),
        row("fp16-none", final_loss=1.0, findings=[finding]),
    ]
    assert list(row_notes(rows, verdicts(rows))) == [
        "bf16 / fp16, static scaler: no scaler",
        "fp16, no scaler: gradient-underflow: half of it is 0",
    ]


def test_which_memory_it_is() -> None:
    assert "saves for backward" in next(memory_note([row("fp32")]))
    peak = Row(VARIANT_BY_NAME["fp32"], FINISHED, steps=1, memory=1.0, memory_kind="peak")
    assert "on the device" in next(memory_note([peak]))
    packed = Row(VARIANT_BY_NAME["fp32"], FINISHED, steps=100, seconds=0.01)
    assert "checkpointing" in next(memory_note([packed]))
    short = Row(VARIANT_BY_NAME["fp32"], FINISHED, steps=3)
    assert "the runs ended" in next(memory_note([short]))
