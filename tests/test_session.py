"""One pump for every front end: records in, rules checked, what changed out."""

from __future__ import annotations

import math

import pytest

from ampwatch.controls import DTYPE, SCALER, Controls
from ampwatch.record import Notice, Record, RunEnd, RunInfo, StepRecord
from ampwatch.rules import Finding, Rule
from ampwatch.run import Run
from ampwatch.session import PUMP_RECORDS, Session


class Given:
    """A source that gives what a test has put into it."""

    def __init__(self, *records: Record) -> None:
        self.ready = list(records)
        self.polls = 0

    def poll(self) -> list[Record]:
        self.polls += 1
        ready, self.ready = self.ready, []
        return ready


def step(number: int, skipped: bool = False) -> StepRecord:
    return StepRecord(
        number,
        number * 0.01,
        loss=1.0,
        scale=8.0,
        skipped=skipped,
        dtype="float16",
        scaler="dynamic",
    )


def test_nothing_came_nothing_changed() -> None:
    change = Session(Given()).pump()
    assert not change
    assert (change.records, change.events, change.findings, change.ended) == (0, [], [], False)


def test_records_reach_the_run() -> None:
    session = Session(Given(RunInfo("toy", 1.0), step(0), step(1)))
    change = session.pump()
    assert change
    assert (change.records, session.run.steps) == (3, 2)
    assert not session.pump()


def test_a_pump_takes_no_more_than_it_should() -> None:
    source = Given(*(step(n) for n in range(2 * PUMP_RECORDS + 10)))
    session = Session(source)
    taken = [session.pump().records for _ in range(4)]
    assert taken == [PUMP_RECORDS, PUMP_RECORDS, 10, 0]
    assert session.run.steps == 2 * PUMP_RECORDS + 10


def test_what_waits_is_not_added_to() -> None:
    """A source that brings more than is taken must not fill the memory."""
    source = Given(*(step(n) for n in range(100)))
    session = Session(source)
    session.pump(10)
    source.ready = [step(n) for n in range(100, 200)]
    session.pump(10)
    assert source.polls == 1
    assert session.backlog == 80
    while session.pump(10):
        pass
    assert list(map(int, (session.run.steps, session.backlog))) == [200, 0]


def test_new_events_and_findings_are_told_once() -> None:
    session = Session(Given(step(0, skipped=True)))
    change = session.pump()
    assert [event.kind for event in change.events] == ["skip"]
    assert [finding.rule for finding in change.findings] == ["scale-settling"]
    session.source.ready = [step(1)._replace(scale=4.0)]  # type: ignore[attr-defined]
    change = session.pump()
    assert (change.events, change.findings) == ([], [])
    assert [finding.rule for finding in session.findings] == ["scale-settling"]


def test_a_finding_that_says_something_else_is_told_again() -> None:
    session = Session(Given(step(0, skipped=True)))
    session.pump()
    session.source.ready = [step(1, skipped=True)._replace(scale=4.0)]  # type: ignore[attr-defined]
    (finding,) = session.pump().findings
    assert (finding.rule, finding.count) == ("scale-settling", 2)
    assert session.findings == [finding]


def test_findings_stand_with_the_worst_first() -> None:
    def rule(severity: str, first: int) -> Rule:
        return Rule(
            f"{severity}-{first}", severity, "", "", "",
            lambda run: [Finding(f"{severity}-{first}", severity, "", first)],
        )  # fmt: skip

    rules = [rule("info", 1), rule("error", 9), rule("warning", 3), rule("error", 2)]
    session = Session(Given(step(0)), rules=rules)
    session.pump()
    assert [finding.rule for finding in session.findings] == [
        "error-2", "error-9", "warning-3", "info-1",
    ]  # fmt: skip


def test_notices_answer_the_knobs_and_refusals_become_events() -> None:
    controls = Controls()
    controls.request(DTYPE, "bfloat16")
    refusal = Notice("this loop has no autocast", "dtype", "float32", refused=True)
    session = Session(
        Given(step(3), refusal, Notice("the scaler is off", "scaler", "off")), controls
    )
    change = session.pump()
    assert controls.value(DTYPE) == "float32"
    assert controls.value(SCALER) == "off"
    assert [notice.text for notice in change.notices] == [refusal.text, "the scaler is off"]
    # What was done shows in the next step's record, and is told from there.
    assert [event.text for event in change.events] == [refusal.text]


def test_the_end_is_told() -> None:
    assert Session(Given(step(0), RunEnd("finished", 1))).pump().ended


def test_a_run_line_that_adds_to_the_first_keeps_the_run() -> None:
    """A script names its model long after it was started: same start, more known."""
    session = Session(
        Given(RunInfo("toy", 1.0), step(0), RunInfo("toy", 1.0, tensors=("w",)), step(1))
    )
    run = session.run
    session.pump()
    assert session.run is run
    assert session.run.steps == 2


def test_of_several_runs_in_a_log_the_last_is_shown() -> None:
    source = Given(
        RunInfo("first", 1.0), step(0, skipped=True), step(1), RunEnd("finished", 2),
        RunInfo("second", 2.0), step(0),
    )  # fmt: skip
    session = Session(source)
    change = session.pump()
    assert change.renewed
    assert not change.ended
    assert (session.run.steps, session.run.skipped, session.run.end) == (1, 0, None)
    assert session.run.info == RunInfo("second", 2.0)
    assert session.findings == []


def test_restarting_forgets_everything() -> None:
    controls = Controls()
    session = Session(Given(step(0, skipped=True), step(1)), controls)
    session.pump(1)
    controls.request(SCALER, "off")
    session.restart(Given(step(0)))
    assert (session.run.steps, session.findings, session.backlog) == (0, [], 0)
    assert controls.values == Controls().values
    change = session.pump()
    assert change.renewed
    assert session.run.steps == 1


def test_restarting_is_a_change_before_anything_came() -> None:
    session = Session(Given(step(0)))
    session.pump()
    session.restart(Given())
    assert session.pump().renewed
    assert not session.pump()


def test_the_summary_holds_the_findings() -> None:
    session = Session(Given(step(0, skipped=True)))
    session.pump()
    summary = session.summary()
    assert (summary["steps"], summary["skipped"]) == (1, 1)
    assert [finding["rule"] for finding in summary["findings"]] == ["scale-settling"]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_the_size_of_a_pump_changes_nothing(piece: int) -> None:
    records: list[Record] = []
    scale = 65536.0
    for number in range(400):
        bad = number < 3 or number % 90 == 89
        records.append(
            StepRecord(
                number, number * 0.01, loss=math.nan if number == 89 else 1.0, scale=scale,
                skipped=bad, dtype="float16", scaler="dynamic", nonfinite_tensors=int(bad),
            )
        )  # fmt: skip
        scale *= 0.5 if bad else 1.0
    whole, parts = Session(Given(*records)), Session(Given(*records))
    whole.pump()
    while parts.pump(piece):
        pass
    assert parts.findings == whole.findings
    assert parts.run.events.items == whole.run.events.items
    assert parts.summary() == whole.summary()


def test_a_rule_sees_the_run() -> None:
    seen: list[Run] = []
    rule = Rule("x", "info", "", "", "", lambda run: seen.append(run) or [])  # type: ignore[func-returns-value]
    session = Session(Given(step(0)), rules=[rule])
    session.pump()
    session.pump()
    assert seen == [session.run]
