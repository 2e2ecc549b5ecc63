"""Small loops that go wrong in the ways people report most, each with its right answer.

They lie beside the repository, as plain scripts that know nothing of us. Each must be right on
three roads: with the hook in the script, under ``ampwatch run`` as it is, and from the log of that.
``pytest tests/rules/test_cases.py -k table -s -n 0`` prints them all in one table.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from case_roads import NoPlace, diagnosed, faults, hooked, watched, with_statement

from ampwatch.rules import SEVERITIES

FOLDER = Path(__file__).parents[2].parent / "shared" / "cases"
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    if (FOLDER / "expected.json").is_file()
    else {}
)
ROADS = ("hook", "run", "diagnose")

if not EXPECTED:
    pytest.skip("no folder of cases beside the repository", allow_module_level=True)


@dataclass(frozen=True)
class Outcome:
    """One case on all three roads."""

    name: str
    log: Path
    """Of ``ampwatch run``."""
    error: str | None
    """What ended the script with the hook in it."""
    summaries: dict[str, dict[str, Any]]
    """The diagnosis on each road."""

    def faults(self, road: str) -> list[str]:
        return faults(self.summaries[road], EXPECTED[self.name])

    @property
    def row(self) -> str:
        """Its line of the table: right or wrong, and what was found, worst first."""
        words = ("WRONG" if self.faults(road) else "right" for road in ROADS)
        on: dict[tuple[int, str], list[str]] = {}
        for road in ROADS:
            for finding in self.summaries[road]["findings"]:
                key = (SEVERITIES.index(finding["severity"]), finding["rule"])
                on.setdefault(key, []).append(road)
        told = [
            rule if len(roads) == len(ROADS) else f"{rule} ({', '.join(roads)} alone)"
            for (_, rule), roads in sorted(on.items())
        ]
        cells = "".join(f"{word:10}" for word in words)
        return f"{self.name:28}{cells}{', '.join(told) or 'nothing'}"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcome]:
    """Examines a case, once."""
    folder = tmp_path_factory.mktemp("cases")

    @cache
    def examine(name: str) -> Outcome:
        own, foreign = folder / f"{name}.hook.jsonl", folder / f"{name}.run.jsonl"
        error = hooked(FOLDER / name, own)
        summaries = {
            "hook": diagnosed(own),
            "run": watched(FOLDER / name, foreign),
            "diagnose": diagnosed(foreign),
        }
        return Outcome(name, foreign, error, summaries)

    return examine


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # rightly: it is one
@pytest.mark.parametrize("name", EXPECTED)
def test_a_case_is_right_on_three_roads(
    name: str, outcome: Callable[[str], Outcome], capfd: pytest.CaptureFixture[str]
) -> None:
    seen = outcome(name)
    assert {road: seen.faults(road) for road in ROADS} == {road: [] for road in ROADS}
    live, again = seen.summaries["run"], seen.summaries["diagnose"]
    assert again["findings"] == live["findings"]
    assert seen.error == EXPECTED[name]["error"]  # the hook leaves the script its own error
    assert capfd.readouterr().err == ""  # and has not stopped watching


def test_the_command_itself_says_the_same_of_a_log(outcome: Callable[[str], Outcome]) -> None:
    seen = outcome(next(iter(EXPECTED)))
    command = [sys.executable, "-m", "ampwatch", "diagnose", "--json", str(seen.log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == seen.summaries["diagnose"]


def test_the_hook_goes_before_the_loop_that_trains() -> None:
    head = "def main():\n    for x in data:\n        look(x)"
    loop = "    while True:\n        for x in data:\n            loss(x).backward()\nmain()"
    hooked_up = with_statement(f"{head}\n{loop}", "hook()")
    assert ast.unparse(hooked_up) == f"{head}\n    hook()\n{loop}"
    with pytest.raises(NoPlace):
        with_statement(f"{head}\nmain()", "hook()")


def test_the_table_of_all_cases(outcome: Callable[[str], Outcome]) -> None:
    print(f"\n\n{'case':28}{''.join(f'{road:10}' for road in ROADS)}found, worst first")
    wrong = 0
    for seen in map(outcome, EXPECTED):
        print(seen.row, flush=True)
        wrong += any(seen.faults(road) for road in ROADS)
    print(f"{len(EXPECTED)} cases, {wrong} wrong")
    assert wrong == 0
