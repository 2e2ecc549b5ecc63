"""The rule about trying larger scales too often."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.rules.levels import run_away
from ampwatch.rules.mathematics import overflow_rhythm, overflows
from ampwatch.rules.skips import fitted
from ampwatch.run import Run
from ampwatch.run.rhythm import Rhythm
from ampwatch.run.spans import Span
from ampwatch.words import count_words, ordinal, share_words

PROBES_COST = 1 / 50
"""torch's interval of 2000 costs a step in 2000; more than one in 50 is felt."""
FEWEST_PROBES = 3


def _interval(run: Run) -> Iterator[Finding]:
    """Skips right after growth that are more than one step in 50. And skips at every n-th step,
    which are not growth's own: the scale grows back between two of them, so that whatever is
    special about those steps is lost each time."""
    rhythm = overflow_rhythm(run)
    if rhythm is not None and not fitted(run, rhythm):
        yield _periodic(run, rhythm)
        return
    tally = overflows(run, "probe")
    if tally is None or tally.first is None or tally.bursts < FEWEST_PROBES or run_away(run):
        return
    interval = run.scale.growth_interval
    steps = run.steps - max(0, tally.first - (interval or 0))
    if tally.skips <= PROBES_COST * steps:
        return
    message = f"{tally.skips:,} of {count_words(steps, 'step')} "
    message += f"({share_words(tally.skips, steps)}) were lost to trying a larger scale"
    message += "" if interval is None else f" every {count_words(interval, 'clean step')}"
    yield Finding(
        "growth-interval-too-short",
        "warning",
        message,
        tally.first,
        tally.last,
        tally.skips,
        evidence={
            "growth_interval": interval,
            "steps_lost": tally.skips,
            "share": tally.skips / steps,
        },
    )


def _periodic(run: Run, rhythm: Rhythm) -> Finding:
    """What C67 of pytorch issue 152279 looks like: an extra loss term that never has an effect."""
    interval = run.scale.growth_interval
    steps = rhythm.last - rhythm.first + 1
    lost = sum(rhythm.first <= skip.step <= rhythm.last for skip in run.bursts.recent)
    message = f"every {ordinal(rhythm.period)} step was skipped, {rhythm.beats:,} times in a row "
    message += f"from step {rhythm.first:,} on: what is special about those steps (an extra loss "
    message += "term?) has never had any effect. Between two of them the scale grows back"
    message += "" if interval is None else f" (growth_interval is {interval:,})"
    message += f"; {count_words(lost, 'step')} ({share_words(lost, steps)}) were lost in all"
    return Finding.over(
        Span(rhythm.beats, rhythm.first, rhythm.last), "growth-interval-too-short", "warning",
        message,
        period=rhythm.period, growth_interval=interval, steps_lost=lost, share=lost / steps,
    )  # fmt: skip


RULES = (
    Rule(
        "growth-interval-too-short",
        "warning",
        "Skips by growth cost more than about 1 step in 50.",
        "Each time the scale grows one step too far, a step is lost. With growth_interval n that "
        "is about one step in n, for ever. A loss term that comes at every 16th step, say, and is "
        "much heavier than the others is lost each time: the scale grows back between, to fit the "
        "ordinary steps.",
        "Raise growth_interval; torch's default is 2000. Where every n-th step is lost, make it "
        "several times n, or make the heavy loss term smaller.",
        _interval,
        source="torch.amp documentation, GradScaler (growth_interval); pytorch issue 152279 (a "
        "loss term at every 16th step that is lost each time).",
        before="scaler = GradScaler(growth_interval=20)",
        after="scaler = GradScaler(growth_interval=2000)",
    ),
)
