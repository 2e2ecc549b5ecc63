"""The README's table of keys, made from the bindings.

python -m ampwatch.tui.key_table README.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from textual.binding import Binding
from textual.keys import format_key

from ampwatch.tui.app import DashboardApp
from ampwatch.tui.help import GROUPS, grouped
from ampwatch.tui.keys import WALK
from ampwatch.tui.panels.explain import Body
from ampwatch.tui.panels.range import Range

MARKS = re.compile(r"(<!-- keys:.*?-->)\n.*?(<!-- end of keys -->)", re.DOTALL)


def key_table() -> str:
    """Every key of the dashboard with what it does, as a Markdown table."""
    groups = grouped([*DashboardApp.BINDINGS, *WALK, *Body.BINDINGS, *Range.BINDINGS])
    rows = ["| key | does |", "| --- | --- |"]
    for name, title in GROUPS.items():
        if groups[name]:
            rows.append(f"| **{title}** | |")
        rows.extend(f"| {_keys(binding)} | {_words(binding)} |" for binding in groups[name])
    return "\n".join(rows)


def _keys(binding: Binding) -> str:
    return " ".join(f"`{format_key(key)}`" for key in binding.key.split(","))


def _words(binding: Binding) -> str:
    return binding.tooltip or binding.description


def with_key_table(text: str) -> str:
    """The text with the table renewed between its two marks.

    Raises:
        ValueError: the marks are not there.
    """
    renewed, count = MARKS.subn(lambda marks: f"{marks[1]}\n{key_table()}\n{marks[2]}", text)
    if count != 1:
        raise ValueError("the text does not have the two marks of the table of keys, once each")
    return renewed


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(with_key_table(path.read_text(encoding="utf-8")), encoding="utf-8")
