"""`ampwatch diagnose`: findings of a log as text, as JSON, and as an exit code."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from recorded_logs import INFO, collapse, healthy, step, write_log

from ampwatch.cli import main
from ampwatch.log import rank_path


def diagnose(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["diagnose", *map(str, arguments)])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_log(tmp_path / "good.jsonl", healthy())


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write_log(tmp_path / "bad.jsonl", collapse())


def strictly(text: str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    body: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return body


def test_a_healthy_run_is_said_to_be_healthy(good: Path) -> None:
    done = diagnose(good)
    assert done.exit_code == 0
    assert "toy: finished after 30 steps" in done.stdout
    assert "Healthy: the 2 skipped steps are part of how loss scaling works" in done.stdout
    assert "info  scale-settling" in done.stdout


def test_a_finding_is_told_with_steps_place_numbers_and_remedy(bad: Path) -> None:
    done = diagnose(bad)
    assert done.exit_code == 0
    lines = " ".join(done.stdout.split())
    assert "Something is wrong with this training: 1 error." in lines
    for words in (
        "error scale-collapse",
        "when steps 5 to 44 (40 times)",
        "where head.weight",
        "numbers cause parameter, scale before 2^10, scale after 2^-30",
        "do Put right what is named as the cause",
    ):
        assert words in lines, words


def test_json_is_one_strict_object(bad: Path) -> None:
    body = strictly(diagnose(bad, "--json").stdout)
    assert body["healthy"] is False
    assert body["verdict"] == "Something is wrong with this training: 1 error."
    assert (body["steps"], body["skipped"]) == (45, 40)
    (finding,) = body["findings"]
    assert finding == {
        "rule": "scale-collapse",
        "severity": "error",
        "first_step": 5,
        "last_step": 44,
        "count": 40,
        "tensor": "head.weight",
        "message": finding["message"],
        "evidence": {
            "cause": "parameter",
            "scale_before": 1024.0,
            "scale_after": 2.0**-30,
            "nonfinite_losses": 0,
            "steps_lost": 40,
            "skips_left": 98,
        },
    }


def test_numbers_that_json_lacks_are_spelled(tmp_path: Path) -> None:
    records = [INFO, step(0, 8.0, loss=math.nan, scaler="off")]
    body = strictly(diagnose(write_log(tmp_path / "run.jsonl", records), "--json").stdout)
    assert body["final_loss"] == "nan"
    assert body["healthy"] is False


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ("scale-collapse", 3),
        ("scale-settling,scale-collapse", 3),
        ("error", 3),
        ("warning", 3),  # and worse
        ("scale-settling", 0),
        ("lone-overflow,bf16-with-scaler", 0),
    ],
)
def test_chosen_rules_make_it_fail(bad: Path, chosen: str, code: int) -> None:
    done = diagnose(bad, "--json", "--fail-on", chosen)
    assert done.exit_code == code
    strictly(done.stdout)
    assert ("--fail-on found scale-collapse" in done.stderr) == (code == 3)


def test_what_is_normal_is_no_error(good: Path) -> None:
    assert diagnose(good, "--fail-on", "error,warning").exit_code == 0
    assert diagnose(good, "--fail-on", "scale-settling").exit_code == 3


def test_a_folder_of_ranks_is_one_run(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_log(rank_path(tmp_path, rank, 2), collapse())
    body = strictly(diagnose(tmp_path, "--json").stdout)
    assert body["steps"] == 45
    assert [finding["rule"] for finding in body["findings"]] == ["scale-collapse"]


def test_a_line_that_cannot_be_read_is_told_and_left_out(good: Path) -> None:
    with good.open("a") as log:
        log.write("nonsense\n")
    done = diagnose(good, "--json")
    assert done.exit_code == 0
    assert strictly(done.stdout)["steps"] == 30
    assert "the first is line 33" in done.stderr


def test_a_log_without_steps_is_not_judged(tmp_path: Path) -> None:
    done = diagnose(write_log(tmp_path / "run.jsonl", [INFO]))
    assert done.exit_code == 0
    assert "nothing to judge" in done.stdout
