"""Which variant to choose on this machine, and why, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ampwatch.compare.figures import FINISHED, STOPPED, Row
from ampwatch.compare.start import start_note
from ampwatch.compare.variants import BASELINE, VARIANT_BY_NAME
from ampwatch.compare.verdict import DIVERGED, LESS, NOTHING, Verdict

FASTER, SLOWER = 0.97, 1.03
"""Less of a difference in time is nothing to choose by."""
NEAR = 1.05
"""Who takes so little longer than the fastest is as good, if it is simpler."""
ROOMIER = 0.9
"""Less than this of fp32's memory is worth a choice where the time is equal."""
CANDIDATES = (BASELINE, "bf16", "fp16-dynamic")
"""Simplest first. A static scale fits one stretch of a run; no scaler at all is luck."""


@dataclass(frozen=True, slots=True)
class Choice:
    variant: str | None
    sentence: str


def choose(rows: Sequence[Row], verdicts: Sequence[Verdict]) -> Choice:
    """The variant to train in on this machine.

    Of those that learn as fp32 does the fastest; where the time is equal the one that needs
    clearly less memory; otherwise the simplest.
    """
    by_name = {row.variant.name: row for row in rows}
    judged = {verdict.variant: verdict for verdict in verdicts}
    base = by_name.get(BASELINE)
    if base is None or base.status != FINISHED or not base.steps:
        how = "was stopped" if base is not None and base.status == STOPPED else "failed"
        return Choice(None, f"No choice: fp32, which the others are measured by, {how}.")
    if start_note(rows) is not None:
        return Choice(None, "No choice: the runs did not start alike.")
    if not judged[BASELINE].good:
        return Choice(
            None,
            "No choice: the loss does not fall in fp32 in so few steps, so nothing tells whether "
            "the others learn; try more --steps.",
        )
    rivals = [by_name[name] for name in CANDIDATES[1:] if name in by_name]
    if not rivals:
        names = " nor ".join(VARIANT_BY_NAME[name].spoken for name in CANDIDATES[1:])
        return Choice(None, f"No choice: neither {names} was run beside fp32.")
    others = [row for row in rivals if judged[row.variant.name].good]
    if base.seconds is None or any(row.ratio is None for row in others):
        return Choice(None, f"No choice: {base.steps:,} steps are too few to time them.")
    bad = _bad(verdicts)
    sure = [row for row in others if not row.unsure]
    faster = [row for row in sure if _time(row) < FASTER and (row.ratio_high or 0.0) < 1.0]
    if faster:
        best = min(map(_time, faster))
        chosen = next(row for row in faster if _time(row) <= best * NEAR)
        why = f"it learns as fp32 does and takes {part_words(_time(chosen))} its time a step"
        if chosen.memory_ratio is not None:
            why += f" and {part_words(chosen.memory_ratio)} its memory"
        if chosen.variant.scaler == "off":
            why += ", without a scaler"
        return _choice(chosen, why, bad)
    if len(sure) < len(others):
        return Choice(
            None,
            "No choice: step times vary too much to compare them, as if something else kept this "
            "machine busy; run it again when that is over.",
        )
    level = [row for row in others if _time(row) <= SLOWER]
    roomy = next((row for row in level if _memory(row) < ROOMIER), None)
    if roomy is not None:
        part = part_words(_memory(roomy))
        return _choice(roomy, f"it learns as fp32 does in its time and {part} its memory", bad)
    why = _why_fp32(level, [row for row in others if row not in level])
    if not why:
        could = any(row.status == FINISHED for row in rivals)
        why = f"none of the others {'learns as it does' if could else 'ran to its end'}"
    small = min(others, key=_memory, default=None)
    if small is not None and _memory(small) < ROOMIER:
        name = small.variant.spoken
        why += f"; if memory is short, {name} needs {part_words(_memory(small))} fp32's"
    return _choice(base, why, bad)


def part_words(ratio: float) -> str:
    """0.45 of, 1.2 times, 12 times."""
    return f"{ratio:.2f} of" if ratio < 0.995 else f"{times_words(ratio)} times"


def times_words(ratio: float) -> str:
    """1.03, 1.4, 12."""
    return f"{ratio:.2f}" if ratio < 1.1 else f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"


def _why_fp32(level: Sequence[Row], slower: Sequence[Row]) -> str:
    parts = []
    if level:
        gain = "gains" if len(level) == 1 else "gain"
        parts.append(f"{_listed([row.variant.spoken for row in level])} {gain} no time")
    if slower:
        told = [f"{times_words(_time(row))} times as long in {row.variant.spoken}"
                for row in slower]  # fmt: skip
        parts.append(f"a step takes {_listed(told)}")
    return _listed(parts)


def _bad(verdicts: Sequence[Verdict]) -> str:
    """What else is to be known: the variants that failed to learn."""
    told = ""
    for words in (NOTHING, DIVERGED, LESS):
        names = [VARIANT_BY_NAME[each.variant].spoken for each in verdicts if each.words == words]
        if names:
            told += f"; {_listed(names)} {words}"
    return told


def _choice(chosen: Row, why: str, bad: str) -> Choice:
    variant = chosen.variant
    return Choice(variant.name, f"Choose {variant.spoken} on this machine: {why}{bad}.")


def _time(row: Row) -> float:
    return 1.0 if row.ratio is None else row.ratio


def _memory(row: Row) -> float:
    return 1.0 if row.memory_ratio is None else row.memory_ratio


def _listed(words: Sequence[str]) -> str:
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} and {words[-1]}"
