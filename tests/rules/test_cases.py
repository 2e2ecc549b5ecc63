"""Small loops that go wrong in the ways people report most, each with its right answer.

They lie beside the repository, as plain scripts that know nothing of us. Each runs unmodified
under ``ampwatch run``, and is examined a second time from its log. ``-s`` prints the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ampwatch.log import read_log
from ampwatch.record import Record
from ampwatch.session import Session

FOLDER = Path(__file__).parents[2].parent / "shared" / "cases"
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    if (FOLDER / "expected.json").is_file()
    else {}
)
TROUBLE = ("warning", "error")

if not EXPECTED:
    pytest.skip("no folder of cases beside the repository", allow_module_level=True)


class Recorded:
    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def poll(self) -> list[Record]:
        records, self._records = self._records, []
        return records


def wrong(summary: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """What of a summary is not as it must be."""
    found = {finding["rule"]: finding["severity"] for finding in summary["findings"]}
    allowed = {*expected["must"], *expected["may"]}
    faults = [f"{rule} was not found" for rule in expected["must"] if rule not in found]
    faults += [
        f"{rule} ({severity}) is no mistake of this loop"
        for rule, severity in found.items()
        if severity in TROUBLE and rule not in allowed
    ]
    for key in ("status", "skipped"):
        if summary[key] != expected[key]:
            faults.append(f"{key} is {summary[key]!r}, not {expected[key]!r}")
    if summary["skipped_steps"] != expected["skipped_at"]:
        faults.append(f"skipped at {summary['skipped_steps']}")
    return faults


@pytest.mark.parametrize("name", EXPECTED)
def test_a_case_is_named_rightly_live_and_from_its_log(name: str, tmp_path: Path) -> None:
    expected, log = EXPECTED[name], tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "ampwatch", "run", "--headless", "--json"]
    done = subprocess.run(
        [*command, "--log", str(log), str(FOLDER / name)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    live = json.loads(done.stdout)
    session = Session(Recorded(list(read_log(str(log)))))
    while session.pump():
        pass
    again = session.summary()
    found = ", ".join(finding["rule"] for finding in live["findings"]) or "nothing"
    faults = wrong(live, expected)
    print(f"\n{name:28} {'right' if not faults else 'WRONG'}   found {found}")
    assert faults == []
    assert wrong(again, expected) == []
    assert [each["rule"] for each in again["findings"]] == [
        each["rule"] for each in live["findings"]
    ]
    assert "stopped watching" not in done.stderr
