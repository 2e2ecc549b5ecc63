"""The table and the sentences of a comparison, for a terminal or a plain file."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ampwatch.compare.figures import FAILED, IMPOSSIBLE, Row
from ampwatch.compare.verdict import Verdict
from ampwatch.words import number_words, power_words

GOOD, BAD = "green", "bold red"
NONE = "–"
NARROW = 116
"""In fewer columns the headings and names are shorter."""
WIDE_HEADINGS = (
    "time a step", "× fp32", "memory", "× fp32", "final loss", "to fp32", "skipped", "flushed",
)  # fmt: skip
NARROW_HEADINGS = ("time", "×", "memory", "×", "loss", "to fp32", "skips", "flushed")
TURNED_HEADINGS = ("time", "× fp32", "memory", "× fp32", "loss", "to fp32", "skips", "flushed")


def table(rows: Sequence[Row], verdicts: Sequence[Verdict], width: int) -> Table:
    """One line a variant; where that is too wide, one column a variant."""
    wide = width >= NARROW
    gap = 2 if wide else 1
    names = ("variant", *(WIDE_HEADINGS if wide else NARROW_HEADINGS))
    lines = [[_name(row, wide), *_figures(row)] for row in rows]
    last = list(map(_verdict, rows, verdicts))
    needed = max(len(word) for each in last for word in each.plain.split())
    for name, *column in zip(names, *lines, strict=True):
        needed += gap + max(len(name), *map(len, column))
    if needed > width:
        return _turned(rows, verdicts)
    made = _empty(gap)
    made.add_column("variant", no_wrap=True)
    for name in names[1:]:
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("verdict")
    for line, verdict in zip(lines, last, strict=True):
        made.add_row(*line, verdict)
    return made


def _turned(rows: Sequence[Row], verdicts: Sequence[Verdict]) -> Table:
    """One column a variant."""
    made = _empty(1)
    made.add_column("variant", no_wrap=True)
    for row in rows:
        made.add_column(row.variant.short, justify="right")
    figures = [_figures(row) for row in rows]
    for at, heading in enumerate(TURNED_HEADINGS):
        made.add_row(heading, *(cells[at] for cells in figures))
    made.add_row("verdict", *map(_verdict, rows, verdicts))
    return made


def _empty(gap: int) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))


def _name(row: Row, wide: bool) -> Text:
    words = row.variant.words
    if not wide:
        return Text(row.variant.short)
    if row.variant.scaler == "static" and row.final_scale:
        return Text(f"{words.removesuffix(' scaler')} {power_words(row.final_scale)}")
    return Text(words)


def _figures(row: Row) -> list[Text]:
    if row.status == IMPOSSIBLE or not row.steps:
        return [Text(NONE, "dim")] * len(WIDE_HEADINGS)
    return [
        _or_none(None if row.seconds is None else time_words(row.seconds)),
        _or_none(None if row.ratio is None else ratio_words(row.ratio)),
        _or_none(None if row.memory is None else bytes_words(row.memory)),
        _or_none(None if row.memory_ratio is None else ratio_words(row.memory_ratio)),
        _or_none(None if row.final_loss is None else number_words(row.final_loss)),
        _or_none(difference_words(row)),
        Text(f"{row.skipped:,}"),
        _or_none(None if row.flushed is None else percent_words(row.flushed)),
    ]


def _verdict(row: Row, verdict: Verdict) -> Text:
    words = f"failed at step {row.steps}" if row.status == FAILED and row.steps else verdict.words
    return Text(words, GOOD if verdict.good else BAD)


def _or_none(words: str | None) -> Text:
    return Text(NONE, "dim") if words is None else Text(words)


def difference_words(row: Row) -> str | None:
    """The difference of the final losses, in percent of fp32's, or as a factor."""
    if row.difference is None or row.final_loss is None:
        return None
    if not math.isfinite(row.difference):
        return NONE
    base = row.final_loss - row.difference
    if row.difference == 0:
        return "0 %"
    share = row.difference / abs(base) if base else math.inf
    if abs(share) >= 1:
        return f"×{number_words(row.final_loss / base)}" if base > 0 else f"{row.difference:+.2g}"
    words = percent_words(abs(share))
    return words if words.startswith("<") else f"{'+' if share > 0 else '-'}{words}"


def percent_words(share: float) -> str:
    """0 %, <0.1 %, 2.5 %, 100 %."""
    percent = 100 * share
    if percent == 0:
        return "0 %"
    if percent < 0.05:
        return "<0.1 %"
    return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"


def ratio_words(ratio: float) -> str:
    """0.52, 1.39, 33.4."""
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.3g}"


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
