"""Findings in words, the same wherever they are shown: when, where, by which numbers, how bad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ampwatch.rules.finding import Finding
from ampwatch.run import Run
from ampwatch.words import count_words, number_words, scale_words, share_words, were

TROUBLING = ("error", "warning")
"""The severities that want something done."""
MOST_SKIPS = 0.02
"""The price of a healthy rhythm: torch's defaults cost one step in 2000, shorter intervals more."""
MOST_VALUES = 8
"""A longer list of numbers is told by its beginning."""


def troubles(findings: Iterable[Finding]) -> list[Finding]:
    """The errors and warnings among findings."""
    return [finding for finding in findings if finding.severity in TROUBLING]


def trouble_words(findings: Iterable[Finding]) -> str:
    """1 error and 2 warnings; "" where there are none."""
    severities = [finding.severity for finding in findings]
    counts = [(severities.count(severity), severity) for severity in TROUBLING]
    return " and ".join(count_words(count, severity) for count, severity in counts if count)


def is_healthy(run: Run, findings: Iterable[Finding]) -> bool:
    """Whether there is nothing to put right in a run that took steps."""
    findings = list(findings)
    failed = run.end is not None and run.end.status == "failed"
    wrong = failed or troubles(findings) or _taken(run) or _unexplained(run, findings)
    return bool(run.steps) and not wrong


def verdict(run: Run, findings: Iterable[Finding]) -> str:
    """How the run is doing, in one sentence: most people only ask whether it is normal."""
    findings = list(findings)
    if not run.steps:
        return "No optimizer step was recorded, so there is nothing to judge."
    bad = trouble_words(findings)
    if bad and any(finding.severity == "error" for finding in findings):
        return f"Something is wrong with this training: {bad}."
    if bad:
        return f"It trains, but less well than it should: {bad}."
    if run.end is not None and run.end.status == "failed":
        why = f": {run.end.error}" if run.end.error else ""
        return f"The training failed{why}. No known mixed-precision mistake was recognised in it."
    taken = _taken(run)
    if taken:
        steps = count_words(taken, "step")
        return f"No known mistake was recognised, but {steps} with inf or NaN {were(taken)} taken."
    unexplained = _unexplained(run, findings)
    if unexplained:
        share = share_words(run.skipped, run.steps)
        return f"No known mistake was recognised, but {share} of the steps were skipped."
    if run.skipped:
        skips = f"{run.skipped:,} skipped steps are" if run.skipped > 1 else "one skipped step is"
        return f"Healthy: the {skips} part of how loss scaling works, and nothing is wrong."
    return f"Healthy: no step was skipped and nothing is wrong in {count_words(run.steps, 'step')}."


def _taken(run: Run) -> int:
    """Steps with inf or NaN that were not skipped."""
    return max(run.nonfinite_steps - run.skipped, 0)


def _unexplained(run: Run, findings: Iterable[Finding]) -> bool:
    """Whether more steps were skipped than a healthy run loses, and no finding tells why."""
    explained = sum(finding.count for finding in findings)
    return run.skipped > max(explained, MOST_SKIPS * run.steps)


def when_words(finding: Finding) -> str:
    """step 12, or steps 3 to 950 (8 times); "" where it belongs to no step."""
    first, last = finding.first_step, finding.last_step
    if first is None:
        return ""
    times = f" ({finding.count:,} times)" if finding.count > 1 else ""
    if last is None or last == first:
        return f"step {first:,}{times}"
    return f"steps {first:,} to {last:,}{times}"


def where_words(finding: Finding) -> str:
    """The tensor and the module it is about, as the user's code names them."""
    places = (finding.tensor, finding.module)
    return ", ".join(dict.fromkeys(place for place in places if place))


def evidence_words(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The numbers a finding rests on: name and value, without those that are not known."""
    return [
        (name.replace("_", " "), _value_words(name, value))
        for name, value in evidence.items()
        if value is not None
    ]


def _value_words(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if name.split("_")[0] == "scale" or name.endswith("_scale"):
            return scale_words(value)
        return f"{value:,}" if isinstance(value, int) else number_words(value)
    if isinstance(value, Mapping):
        pairs = [f"{key} {_value_words(name, each)}" for key, each in value.items()]
        return _shortened(pairs)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _shortened([_value_words(name, each) for each in value])
    return str(value)


def _shortened(values: Sequence[str]) -> str:
    text = ", ".join(values[:MOST_VALUES])
    more = len(values) - MOST_VALUES
    return f"{text}, and {more:,} more" if more > 0 else text
