"""Everything that can be recognised in a run. A family of rules is one file, listed here."""

from __future__ import annotations

from ampwatch.rules import (
    aftermath,
    collapse,
    forward,
    gradients,
    growth,
    levels,
    nan,
    order,
    policy,
    scaled,
    skips,
)
from ampwatch.rules.finding import SEVERITIES, Finding, Rule

RULES: tuple[Rule, ...] = (
    *scaled.RULES,
    *order.RULES,
    *policy.RULES,
    *skips.RULES,
    *growth.RULES,
    *collapse.RULES,
    *levels.RULES,
    *forward.RULES,
    *nan.RULES,
    *aftermath.RULES,
    *gradients.RULES,
)
RULE_BY_ID = {rule.id: rule for rule in RULES}

__all__ = ["RULES", "RULE_BY_ID", "SEVERITIES", "Finding", "Rule"]
