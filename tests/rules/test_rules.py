"""The list of rules: what every rule must have, and the names that are a promise."""

from __future__ import annotations

import json
import textwrap

import pytest

from ampwatch.record import strict
from ampwatch.rules import RULE_BY_ID, RULES, SEVERITIES, Finding, Rule
from ampwatch.run import Run

EXPECTED = {
    "unscaled-backward": "error",
    "clip-before-unscale": "error",
    "backward-in-autocast": "warning",
    "step-in-autocast": "warning",
    "scaler-call-order": "error",
    "step-outside-scaler": "error",
    "fp16-parameters": "error",
    "fp16-without-scaler": "warning",
    "scaler-disabled": "warning",
    "scaler-recreated": "warning",
    "scaler-state-not-restored": "warning",
    "deprecated-amp-api": "info",
    "schedule-on-skipped-step": "warning",
    "scale-settling": "info",
    "growth-probe-skip": "info",
    "lone-overflow": "info",
    "bf16-with-scaler": "info",
    "scale-collapse": "error",
    "static-scale-too-high": "error",
    "static-scale-too-low": "warning",
    "growth-interval-too-short": "warning",
    "scale-runaway": "warning",
    "scale-below-one": "warning",
    "nonfinite-input": "error",
    "forward-overflow": "error",
    "nan-not-overflow": "error",
    "epsilon-underflow": "error",
    "mask-overflow": "error",
    "batchnorm-statistics": "error",
    "stale-gradients": "error",
    "gradient-underflow": "warning",
    "weights-not-moving": "warning",
    "dead-gradients": "warning",
    "loss-spike": "warning",
    "exploding-gradients": "warning",
    "vanishing-gradients": "warning",
}


def test_the_names_and_severities_are_the_published_ones() -> None:
    assert {rule.id: rule.severity for rule in RULES} == EXPECTED
    assert len(RULE_BY_ID) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_explains_itself_in_whole_sentences(rule: Rule) -> None:
    assert rule.severity in SEVERITIES
    for text in (rule.summary, rule.explanation, rule.remedy, rule.source):
        assert text[0].isupper() or text[0].islower()
        assert text.endswith((".", "?"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_shows_the_mistake_put_right_and_says_how_it_is_recognised(rule: Rule) -> None:
    assert rule.before != rule.after
    for code in (rule.before, rule.after):
        compile(f"for _ in ():\n{textwrap.indent(code, ' ')}", rule.id, "exec")
    assert rule.source
    assert rule.check.__doc__


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_finds_nothing_in_a_run_without_steps(rule: Rule) -> None:
    assert list(rule.check(Run())) == []


def test_a_finding_is_strict_json() -> None:
    evidence = {"scale": float("inf"), "period": None}
    finding = Finding("x", "info", "m", 1, 2, 3, "w", "net.2", evidence)
    body = json.loads(json.dumps(strict(finding.as_json()), allow_nan=False))
    assert body == {
        "rule": "x",
        "severity": "info",
        "first_step": 1,
        "last_step": 2,
        "count": 3,
        "message": "m",
        "evidence": {"scale": "inf"},
        "tensor": "w",
        "module": "net.2",
    }
