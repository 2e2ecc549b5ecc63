"""The result as JSON, as a table and as curves."""

from __future__ import annotations

import io
import json
import math

import pytest
from made_runs import ended, falling, track
from rich.console import Console

from ampwatch.compare import VARIANTS
from ampwatch.compare.curves import loss_plot
from ampwatch.compare.figures import FAILED, FINISHED, IMPOSSIBLE, Ended, Row
from ampwatch.compare.machine import Machine
from ampwatch.compare.result import Result
from ampwatch.compare.table import (
    bytes_words,
    difference_words,
    percent_words,
    table,
    time_words,
)
from ampwatch.compare.track import Track
from ampwatch.record import strict

LEARNED, STUCK = falling(1.0, 0.1), [1.0] * 43


def runs() -> list[Ended]:
    zeros, none = {1: [100, 100]}, {1: [10, 0]}
    saved, half = {"saved_bytes": 2000.0}, {"saved_bytes": 1100.0}
    return [
        ended("fp32", track(LEARNED, 0.01, metrics=saved, zeros=none)),
        ended("bf16", track(LEARNED, 0.02, metrics=half, zeros=none)),
        ended("fp16-dynamic", track(LEARNED[:5]), FAILED, error="RuntimeError: [bold]boom"),
        ended("fp16-static", Track(), IMPOSSIBLE, error="no scaler"),
        ended("fp16-none", track(STUCK, 0.04, metrics=half, zeros=zeros)),
    ]


def result() -> Result:
    machine = Machine("cpu", "x86_64", {"float16": 0.25, "bfloat16": 1.0})
    return Result("train.py", 3, 43, True, runs(), machine)


def printed(width: int, encoding: str = "utf-8") -> str:
    made = result()
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    console = Console(file=stream, width=width, highlight=False)
    console.print(table(made.rows, made.verdicts, width))
    for line in loss_plot(made.runs, width, ascii_only=encoding == "ascii"):
        console.print(line, soft_wrap=True)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_json_has_one_entry_a_variant_with_all_figures() -> None:
    body = json.loads(json.dumps(strict(result().as_json()), allow_nan=False))
    assert [run["variant"] for run in body["runs"]] == [variant.name for variant in VARIANTS]
    assert (body["target"], body["seed"], body["steps"], body["device"]) == (
        "train.py", 3, 43, "cpu",
    )  # fmt: skip
    assert body["machine"]["matrix_product_speed"] == {"float16": 0.25, "bfloat16": 1.0}
    fp32, bf16, dynamic, static, none = body["runs"]
    assert fp32["time_ratio"] == 1.0
    assert fp32["step_seconds"] == pytest.approx(0.01)
    assert bf16["time_ratio"] == pytest.approx(2.0)
    assert bf16["memory_ratio"] == 0.55
    assert (bf16["memory_bytes"], bf16["memory_kind"]) == (1100, "saved")
    assert bf16["loss_difference"] == pytest.approx(0.0)
    assert (dynamic["status"], dynamic["error"]) == ("failed", "RuntimeError: [bold]boom")
    assert (static["status"], static["error"]) == ("not possible", "no scaler")
    assert none["verdict"] == "learned nothing"
    assert none["flushed_share"] == 1.0  # 190 of the 190 values that fp32 has
    assert none["final_loss"] == 1.0
    assert none["loss_difference"] == pytest.approx(0.9)
    assert body["choice"]["variant"] == "fp32"


def test_a_loss_that_is_not_finite_is_spelled_in_json() -> None:
    lost = Result("x", 0, 43, True, [ended("fp32", track([math.nan] * 43))])
    text = json.dumps(strict(lost.as_json()), allow_nan=False)
    assert json.loads(text)["runs"][0]["final_loss"] == "nan"


def test_the_table_has_a_line_a_variant() -> None:
    lines = [line.rstrip() for line in printed(120).splitlines()[:6]]
    assert " ".join(lines[0].split()) == (
        "variant time a step × fp32 memory × fp32 final loss to fp32 skipped flushed verdict"
    )
    assert lines[1].split()[:7] == ["fp32", "10", "ms", "1.00", "2", "kB", "1.00"]
    bf16 = " ".join(lines[2].split())
    assert bf16 == "bf16 20 ms 2.00 1.1 kB 0.55 0.1 0 % 0 0 % as fp32"
    assert lines[3].endswith("failed at step 5")
    assert lines[4].split()[-3:] == ["–", "not", "possible"]
    assert "×10" in lines[5]
    assert lines[5].endswith("100 %  learned nothing")


@pytest.mark.parametrize("width", [50, 60, 70, 80, 100, 140])
def test_nothing_is_wider_than_the_terminal_and_no_figure_is_cut(width: int) -> None:
    text = printed(width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for figure in ("10 ms", "2.00", "1.1 kB", "0.55", "×10", "100 %", "baseline"):
        assert figure in text
    for name in ("⠒⠒⠒ fp32", "⠒ ⠒ bf16", "⠂⠂⠂ fp16 dynamic", "⠒⠒  fp16 no scaler"):
        assert text.count(name) == 1


def test_curves_are_named_and_differ_without_colour() -> None:
    text = printed(100)
    for name in ("fp32", "bf16", "fp16 dynamic", "fp16 no scaler"):
        assert f" {name} " in text
    assert "static" not in text.splitlines()[7], "it has no curve"
    assert "\x1b" not in text


def test_what_prints_no_braille_gets_ascii() -> None:
    rows = loss_plot(runs(), 100, ascii_only=True)
    assert all(row.plain.isascii() for row in rows)


def test_without_a_loss_there_is_no_plot() -> None:
    assert loss_plot([ended("fp32", Track())], 80, ascii_only=False) == []


def nothing(status: str, error: str | None = None) -> str | None:
    return Result(
        "x", 0, 9, True, [ended(v.name, Track(), status, error=error) for v in VARIANTS]
    ).nothing_to_compare


def test_where_no_variant_has_got_anywhere_one_sentence_says_why() -> None:
    assert nothing(IMPOSSIBLE, "why") == "why"
    assert nothing(FAILED, "E: x") == "it failed before its first step: E: x"
    none = nothing(FINISHED)
    assert none is not None
    assert none.startswith("no optimizer step was taken")
    assert result().nothing_to_compare is None


@pytest.mark.parametrize(
    ("error", "paired", "told"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", True, True),
        ("killed by signal 9 (SIGKILL)", True, True),
        ("ValueError: no", True, False),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", False, False),
    ],
)
def test_where_memory_was_short_there_is_a_way(error: str, paired: bool, told: bool) -> None:
    lost = [ended("fp32", track(LEARNED)), ended("bf16", Track(), FAILED, error=error)]
    notes = Result("x", 0, 43, paired, lost).notes()
    assert any("--one-at-a-time" in note for note in notes) == told


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.000614, "0.61 ms"), (0.0123, "12 ms"), (0.1234, "123 ms"), (1.234, "1.23 s")],
)
def test_times(seconds: float, words: str) -> None:
    assert time_words(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(512, "512 B"), (25088, "25.1 kB"), (4.72e6, "4.72 MB"), (7e10, "70 GB"), (3e12, "3 TB")],
)
def test_bytes(count: float, words: str) -> None:
    assert bytes_words(count) == words


@pytest.mark.parametrize(
    ("final", "difference", "words"),
    [
        (0.1, 0.0, "0 %"),
        (1.0, 0.9, "×10"),
        (0.102, 0.002, "+2.0 %"),
        (0.05, -0.05, "-50 %"),
        (0.1, 0.00001, "<0.1 %"),
        (-4.0, 1.0, "+20 %"),
        (0.5, 0.5, "+0.5"),
        (math.nan, math.nan, "–"),
        (None, None, None),
    ],
)
def test_differences(final: float | None, difference: float | None, words: str | None) -> None:
    row = Row(VARIANTS[1], FINISHED, steps=9, final_loss=final, difference=difference)
    assert difference_words(row) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0 %"), (1e-5, "<0.1 %"), (0.0006, "0.1 %"), (0.025, "2.5 %"), (1.0, "100 %")],
)
def test_percent(share: float, words: str) -> None:
    assert percent_words(share) == words
