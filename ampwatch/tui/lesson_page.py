"""A page of a lesson as styled text: no widget, so that it is tested by its lines."""

from __future__ import annotations

from itertools import groupby

from textual.content import Content

from ampwatch.lessons import Table
from ampwatch.lessons.page import Page
from ampwatch.tui.foreign import plain

KEY = "bold reverse $text-accent"
TITLES = {
    "loss": "loss",
    "scale": "scale",
    "grad_norm": "gradient norm",
    "nonfinite": "non-finite gradients",
}
HERE = "▶"
GAP = "   "
MOST_CAPS = 3
"""A key that is pressed more often is shown once, with how often."""


def body(page: Page) -> Content:
    """Verdict, text, choices, and what stands in the way."""
    blocks: list[Content] = []
    if page.verdict:
        style = "bold $text-success" if page.right else "bold $text-warning"
        blocks.append(Content.styled(page.verdict, style))
    blocks += [paragraph(each) for each in page.text.split("\n\n") if each]
    if page.choices:
        blocks.append(
            Content("\n").join(
                [Content.assemble(cap(key), " ", plain(words)) for key, words in page.choices]
            )
        )
    if page.trouble:
        blocks.append(Content.styled(plain(page.trouble), "bold $text-warning"))
    return Content("\n\n").join(blocks)


def paragraph(text: str) -> Content:
    """Names in it may come from the user's script: nothing in it is markup."""
    return Content("\n").join([Content(plain(line)) for line in text.split("\n")])


def cap(key: str) -> Content:
    return Content.styled(f" {key} ", KEY)


def prompt(page: Page, beside: bool) -> Content:
    """The last line: which key is next, and which plot is meant."""
    parts: list[Content] = []
    if page.keys:
        label = "" if page.choices or page.keys == ("n",) else "press "
        if label:
            parts.append(Content.styled(label, "bold"))
        for key, same in groupby(page.keys):
            count = len(list(same))
            few = count <= MOST_CAPS
            parts += [cap(key), Content(" ")] * (count if few else 1)
            if not few:
                parts.append(Content.styled(f"{count} times ", "bold"))
    if page.ask:
        parts.append(Content.styled(page.ask, "bold" if page.keys else "$foreground-muted"))
    if page.look and page.table is None and page.tab == "overview":
        looked = " and ".join(TITLES[name] for name in page.look)
        parts.append(Content(("\n" if beside else GAP) * bool(parts)))
        parts.append(Content.styled(f"{HERE} {looked}", "$text-accent"))
    return Content("").join(parts)


def table_content(table: Table) -> Content:
    """Columns as wide as they need to be; a sign before the rows to look at."""
    rows = (table.head, *table.rows)
    widths = [max(len(plain(row[column])) for row in rows) for column in range(len(table.head))]
    lines = [Content.styled(plain(table.caption), "bold $text-primary")]
    for number, row in enumerate(rows, -1):
        cells = [
            plain(cell).ljust(width) if column == 0 else plain(cell).rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        marked = number in table.marked
        style = "$foreground-muted" if number < 0 else "bold $text-accent" if marked else ""
        sign = f"{HERE} " if marked else "  "
        lines.append(Content.styled(sign + GAP.join(cells), style))
    return Content("\n").join(lines)
