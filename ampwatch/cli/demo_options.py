"""Options of a demo's own among those of ampwatch: a misspelt one is found before it runs."""

from __future__ import annotations

import difflib

import click

from ampwatch.errors import UsageError


def check_options(args: list[str], known: tuple[str, ...], command: click.Command) -> None:
    """Raises UsageError for an option that neither ampwatch nor the demo has."""
    ours = {name for parameter in command.params for name in parameter.opts if name[0] == "-"}
    for arg in args:
        name = arg.partition("=")[0]
        if not name.startswith("-") or name in known or _is_number(name):
            continue
        near = difflib.get_close_matches(name, ours.union(known), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no option {name}{hint}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
