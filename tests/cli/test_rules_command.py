"""`ampwatch rules`: what can be recognised, explained."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from ampwatch.cli import main
from ampwatch.cli.rules import MEANINGS
from ampwatch.rules import RULES, SEVERITIES, Rule

FIELDS = {"id", "severity", "summary", "explanation", "remedy", "source", "before", "after"}


def rules(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["rules", *arguments])


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_rule_is_listed_under_its_severity() -> None:
    done = rules()
    assert done.exit_code == 0
    for rule in RULES:
        assert f"  {rule.id} " in done.stdout
        assert rule.summary in words(done.stdout)
    order = [line.partition(":")[0] for line in done.stdout.splitlines() if line[:1].islower()]
    named = [severity for severity in SEVERITIES if any(r.severity == severity for r in RULES)]
    assert [word for word in order if word in MEANINGS] == named


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_explained(rule: Rule) -> None:
    done = rules(rule.id)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{rule.id} ({rule.severity}: ")
    for text in (rule.summary, rule.explanation, rule.remedy, rule.source):
        assert words(text) in words(done.stdout)
    for code in (rule.before, rule.after):
        assert all(f"    {line}" in done.stdout for line in code.splitlines() if line)
    assert ("Before" in done.stdout.splitlines()) == bool(rule.before)


def test_json_holds_the_same() -> None:
    listed = json.loads(rules("--json").stdout)
    assert [each["id"] for each in listed] == [rule.id for rule in RULES]
    assert all(set(each) == FIELDS for each in listed)
    assert json.loads(rules("scale-collapse", "--json").stdout) == next(
        each for each in listed if each["id"] == "scale-collapse"
    )
