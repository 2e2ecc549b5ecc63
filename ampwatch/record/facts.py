"""Facts: what only the hook can see of a step, as short texts in its record.

A fact is a name, or a name with details: ``nonfinite-input:module=net,kind=nan``. Details are
percent-encoded where they hold a sign of ours.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

_PLAIN = " ./_-()[]<>+*"
MOST_CHARACTERS = 200
"""A name out of somebody's code may be of any length."""


def fact(name: str, /, **details: object) -> str:
    """A fact with its details; those that are None are left out."""
    pairs = [
        f"{key}={quote(str(value)[:MOST_CHARACTERS], safe=_PLAIN)}"
        for key, value in details.items()
        if value is not None
    ]
    return f"{name}:{','.join(pairs)}" if pairs else name


def split_fact(text: str) -> tuple[str, dict[str, str]]:
    """Its name and its details; what is not written as ours is all name."""
    name, colon, rest = text.partition(":")
    if not colon:
        return text, {}
    details = {}
    for pair in rest.split(","):
        key, equals, value = pair.partition("=")
        if not equals:
            return text, {}
        details[key] = unquote(value)
    return name, details
