"""The table and the sentences of a comparison, for a terminal or a plain file."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ampwatch.compare.figures import FAILED, IMPOSSIBLE, Row
from ampwatch.compare.verdict import Verdict
from ampwatch.words import number_words, power_words, share_words

GOOD, BAD = "green", "bold red"
NONE = "–"
NARROW = 100
"""In fewer columns the ratios go without a column of their own."""


def table(rows: Sequence[Row], verdicts: Sequence[Verdict], width: int) -> Table:
    """One line a variant."""
    made = Table(box=None, pad_edge=False, padding=(0, 2 if width >= NARROW else 1, 0, 0))
    made.add_column("variant", no_wrap=True)
    for heading in ("time a step", "× fp32", "memory", "× fp32", "final loss", "to fp32"):
        made.add_column(heading, justify="right")
    made.add_column("skipped", justify="right")
    made.add_column("flushed", justify="right")
    made.add_column("verdict")
    for row, verdict in zip(rows, verdicts, strict=True):
        made.add_row(*_cells(row, verdict))
    return made


def _cells(row: Row, verdict: Verdict) -> tuple[Text, ...]:
    name = Text(row.variant.words)
    if row.variant.scaler == "static" and row.final_scale:
        name = Text(f"{row.variant.words.removesuffix(' scaler')} {power_words(row.final_scale)}")
    words = Text(verdict.words, GOOD if verdict.good else BAD)
    if row.status == IMPOSSIBLE or not row.steps:
        return (name, *[Text(NONE, "dim")] * 8, words)
    if row.status == FAILED:
        words = Text(f"failed at step {row.steps}", BAD)
    return (
        name,
        _or_none(None if row.seconds is None else time_words(row.seconds)),
        _or_none(None if row.ratio is None else f"{row.ratio:.2f}"),
        _or_none(None if row.memory is None else bytes_words(row.memory)),
        _or_none(None if row.memory_ratio is None else f"{row.memory_ratio:.2f}"),
        _or_none(None if row.final_loss is None else number_words(row.final_loss)),
        _or_none(difference_words(row)),
        Text(f"{row.skipped:,}"),
        _or_none(None if row.flushed is None else share_words(round(row.flushed * 1e6), 10**6)),
        words,
    )


def _or_none(words: str | None) -> Text:
    return Text(NONE, "dim") if words is None else Text(words)


def difference_words(row: Row) -> str | None:
    """The difference of the final losses, in percent of fp32's, or as a factor."""
    if row.difference is None or row.final_loss is None:
        return None
    if not math.isfinite(row.difference):
        return NONE
    base = row.final_loss - row.difference
    if base == 0:
        return f"{row.difference:+.2g}"
    share = row.difference / abs(base)
    if share == 0:
        return "0 %"
    return f"{100 * share:+.2g} %" if abs(share) < 1 else f"×{number_words(1 + share)}"


def time_words(seconds: float) -> str:
    """0.61 ms, 69 ms, 1.2 s."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    milliseconds = 1000 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.2g} ms"


def bytes_words(count: float) -> str:
    """512 B, 17.4 kB, 1.23 MB; in thousands."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
