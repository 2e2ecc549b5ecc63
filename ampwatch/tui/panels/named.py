"""Which parameters the findings are about."""

from __future__ import annotations

from collections.abc import Iterable

from ampwatch.rules import Finding
from ampwatch.rules.telling import TROUBLING


def named_tensors(names: Iterable[str], findings: Iterable[Finding]) -> dict[str, str]:
    """The parameters that an error or warning names, or whose module it names: the severity."""
    tensors: dict[str, str] = {}
    modules: dict[str, str] = {}
    for finding in findings:  # worst first: the first word about a place stands
        if finding.severity not in TROUBLING:
            continue
        if finding.tensor:
            tensors.setdefault(finding.tensor, finding.severity)
        elif finding.module:
            modules.setdefault(finding.module, finding.severity)
    if not tensors and not modules:
        return {}
    named: dict[str, str] = {}
    for name in names:
        parts = name.split(".")
        around = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
        found = [tensors.get(name), *(modules.get(module) for module in around)]
        severity = next((each for each in found if each), None)
        if severity:
            named[name] = severity
    return named
