"""`--fail-on`: findings that make a command fail, for use in CI."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ampwatch.rules import Finding

FOUND = 3
"""The exit code when a chosen rule was found."""
SEVERITIES = {"error": ("error",), "warning": ("error", "warning")}
"""Chosen by severity: what it stands for, itself and worse."""


def near_rules(name: str) -> list[str]:
    """The rules that somebody may have meant, nearest first."""
    from ampwatch.rules import RULE_BY_ID

    asked = name.lower().replace("_", "-")
    holding = [each for each in RULE_BY_ID if asked and asked in each]
    near = difflib.get_close_matches(asked, RULE_BY_ID, 3, 0.6)
    return list(dict.fromkeys([*near, *holding]))[:3]


def unknown_rule(name: str) -> str:
    """The sentence for a rule that does not exist."""
    near = near_rules(name)
    hint = " or ".join(map(repr, near))
    advice = f"did you mean {hint}?" if near else "see ampwatch rules"
    return f"there is no rule {name!r}; {advice}"


def _chosen(value: str) -> tuple[str, ...]:
    """The names of a list with commas; only such as exist."""
    from ampwatch.rules import RULE_BY_ID

    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in RULE_BY_ID and name not in SEVERITIES:
            raise click.BadParameter(unknown_rule(name) + ".")
    if not names:
        raise click.BadParameter("it names no rule; see ampwatch rules.")
    return tuple(dict.fromkeys(names))


def fail_code(findings: Iterable[Finding], chosen: Sequence[str] | None) -> int:
    """FOUND when one of the chosen rules was found, and 0 otherwise; says on stderr which."""
    hits = [
        finding.rule
        for finding in findings
        if any(
            finding.rule == name or finding.severity in SEVERITIES.get(name, ())
            for name in chosen or ()
        )
    ]
    if not hits:
        return 0
    click.echo(f"ampwatch: --fail-on found {', '.join(dict.fromkeys(hits))}", err=True)
    return FOUND


fail_on_option = click.option(
    "--fail-on",
    type=_chosen,
    metavar="RULE[,...]",
    help="Exit code 3 when one of these was found; 'error' or 'warning' for all of them.",
)
