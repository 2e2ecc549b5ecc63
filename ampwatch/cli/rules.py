"""`ampwatch rules`: what can be recognised in a run, with explanation and remedy."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ampwatch.errors import UsageError

if TYPE_CHECKING:
    from ampwatch.rules import Rule

WIDTH = 96
MEANINGS = {
    "error": "the training is wrong",
    "warning": "it works less well than it should",
    "info": "normal, worth knowing",
}


@click.command(name="rules")
@click.argument("name", metavar="[ID]", required=False)
@click.option("--json", "json_output", is_flag=True, help="The same as JSON.")
def command(name: str | None, json_output: bool) -> int:
    """List what can be recognised in a run; with ID, explain one."""
    from ampwatch.cli.fail_on import unknown_rule
    from ampwatch.rules import RULE_BY_ID, RULES

    if name is None:
        if json_output:
            click.echo(json.dumps([rule.as_json() for rule in RULES], indent=2))
        else:
            click.echo("\n".join(_list(RULES)))
        return 0
    if name not in RULE_BY_ID:
        raise UsageError(unknown_rule(name))
    rule = RULE_BY_ID[name]
    if json_output:
        click.echo(json.dumps(rule.as_json(), indent=2))
    else:
        click.echo("\n".join(_explained(rule)))
    return 0


def _list(rules: tuple[Rule, ...]) -> Iterator[str]:
    column = max(len(rule.id) for rule in rules) + 4
    for severity, meaning in MEANINGS.items():
        chosen = [rule for rule in rules if rule.severity == severity]
        if not chosen:
            continue
        yield f"{severity}: {meaning}"
        for rule in chosen:
            yield textwrap.fill(
                rule.summary,
                WIDTH,
                initial_indent=f"  {rule.id}".ljust(column),
                subsequent_indent=" " * column,
            )
        yield ""
    yield "ampwatch rules ID explains one."


def _explained(rule: Rule) -> Iterator[str]:
    yield f"{rule.id} ({rule.severity}: {MEANINGS[rule.severity]})"
    yield textwrap.fill(rule.summary, WIDTH)
    for heading, text in (("Why", rule.explanation), ("What to do", rule.remedy)):
        yield from _headed(heading, textwrap.indent(textwrap.fill(text, WIDTH - 2), "  "))
    for heading, code in (("Before", rule.before), ("After", rule.after)):
        if code:
            yield from _headed(heading, textwrap.indent(code, "    "))
    yield from _headed("Source", textwrap.indent(textwrap.fill(rule.source, WIDTH - 2), "  "))


def _headed(heading: str, text: str) -> Iterator[str]:
    yield ""
    yield heading
    yield text
