"""Findings in words."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from recorded_logs import INFO, collapse, healthy, step

from ampwatch.record import Record, RunEnd
from ampwatch.rules import Finding
from ampwatch.rules.telling import (
    evidence_words,
    is_healthy,
    trouble_words,
    verdict,
    when_words,
    where_words,
)
from ampwatch.session import Session


class Recorded:
    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)

    def poll(self) -> list[Record]:
        records, self.records = self.records, []
        return records


def judged(records: Iterable[Record]) -> tuple[bool, str]:
    session = Session(Recorded(records))
    session.pump()
    return is_healthy(session.run, session.findings), verdict(session.run, session.findings)


def finding(severity: str = "error", **fields: object) -> Finding:
    return Finding("some-rule", severity, "It happened.", **fields)  # type: ignore[arg-type]


def test_normal_skips_are_said_to_be_normal() -> None:
    assert judged(healthy()) == (
        True,
        "Healthy: the 2 skipped steps are part of how loss scaling works, and nothing is wrong.",
    )


def test_a_run_without_skips_is_healthy() -> None:
    records = [INFO, *(step(number, 8.0) for number in range(20))]
    assert judged(records) == (
        True,
        "Healthy: no step was skipped and nothing is wrong in 20 steps.",
    )


def test_a_mistake_is_no_health() -> None:
    assert judged(collapse()) == (False, "Something is wrong with this training: 1 error.")


def test_nothing_is_said_of_a_run_without_steps() -> None:
    healthy_, words = judged([INFO])
    assert not healthy_
    assert "nothing to judge" in words


def test_a_failure_without_a_finding_is_told_with_its_error() -> None:
    healthy_, words = judged([INFO, step(0, 8.0), RunEnd("failed", 1, "ValueError: no")])
    assert not healthy_
    assert words.startswith("The training failed: ValueError: no.")


def test_inf_that_was_taken_is_not_called_healthy() -> None:
    fields = {"scaler": "off", "loss": math.nan}
    records = [INFO, step(0, 1.0), *(step(n, 1.0, **fields) for n in range(1, 4))]
    session = Session(Recorded(records), rules=())
    session.pump()
    assert not is_healthy(session.run, [])
    assert "3 steps with inf or NaN were taken" in verdict(session.run, [])


def test_skips_that_no_rule_explains_are_not_called_healthy() -> None:
    session = Session(Recorded(healthy()), rules=())
    session.pump()
    assert not is_healthy(session.run, [])
    assert "6.7 % of the steps were skipped" in verdict(session.run, [])  # 2 of 30


def test_only_warnings_sound_milder_than_errors() -> None:
    session = Session(Recorded(healthy()))
    session.pump()
    warned = verdict(session.run, [finding("warning"), finding("warning")])
    assert warned == "It trains, but less well than it should: 2 warnings."
    both = trouble_words([finding("error"), finding("warning"), finding("info")])
    assert both == "1 error and 1 warning"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ""),
        ({"first_step": 1200}, "step 1,200"),
        ({"first_step": 3, "last_step": 3, "count": 2}, "step 3 (2 times)"),
        ({"first_step": 3, "last_step": 950, "count": 8}, "steps 3 to 950 (8 times)"),
    ],
)
def test_steps_are_told_from_first_to_last(fields: dict[str, int], words: str) -> None:
    assert when_words(finding(**fields)) == words


def test_the_place_is_the_tensor_and_its_module() -> None:
    assert where_words(finding()) == ""
    assert where_words(finding(tensor="a.weight", module="a")) == "a.weight, a"
    assert where_words(finding(tensor="a", module="a")) == "a"


def test_evidence_is_told_in_short_numbers() -> None:
    evidence = {
        "scale_after": 2.0**-14,
        "final_scale": 65536.0,
        "share": 0.123456,
        "bursts": 12000,
        "clipped": True,
        "nothing": None,
        "steps": list(range(10)),
        "largest": math.inf,
        "by_optimizer": {"Adam": 3},
        "place": "forward",
    }
    assert evidence_words(evidence) == [
        ("scale after", "2^-14"),
        ("final scale", "2^16"),
        ("share", "0.123"),
        ("bursts", "12,000"),
        ("clipped", "yes"),
        ("steps", "0, 1, 2, 3, 4, 5, 6, 7, and 2 more"),
        ("largest", "inf"),
        ("by optimizer", "Adam 3"),
        ("place", "forward"),
    ]
