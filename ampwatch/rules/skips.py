"""Rules about skips that are part of how loss scaling works: they are told, with their price, so
that nobody worries about them."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.collapse import collapsed
from ampwatch.rules.finding import Finding, Rule
from ampwatch.rules.mathematics import overflow_causes, overflow_rhythm, overflows
from ampwatch.run import Run
from ampwatch.run.burst import LONE_SKIPS
from ampwatch.run.rhythm import Rhythm
from ampwatch.run.skip_causes import LOSSES
from ampwatch.run.spans import Span
from ampwatch.words import count_words, ordinal, scale_words, share_words, were

RARE = 0.05
"""Of all steps: more than one in twenty is no rare thing."""


def _settling(run: Run) -> Iterator[Finding]:
    """Skips of a scale that is new and has not been without an overflow for ten steps in a row,
    or that grew far too large by hand; and skips at every n-th step that came to an end, when the
    scale had fallen far enough for the heaviest steps."""
    tally = overflows(run, "settling")
    rhythm = overflow_rhythm(run)
    ended = rhythm if rhythm is not None and fitted(run, rhythm) else None
    if tally is None or tally.worst is None:
        if ended is not None:
            yield _fitting(run, ended)
        return
    worst = tally.worst
    if collapsed(worst):
        return
    fall = ""
    if worst.scale_before is not None and worst.scale_after is not None:
        fall = f": it went from {scale_words(worst.scale_before)} to "
        fall += scale_words(worst.scale_after)
    skips = tally.skips
    last = tally.last
    if ended is not None:
        late = [skip for skip in run.bursts.recent if ended.holds(skip.step)]
        skips += sum(skip.kind != "settling" for skip in late)
        last = max(ended.last, last or 0)
        fall += f", and lower still for every {ordinal(ended.period)} step"
    yield Finding(
        "scale-settling",
        "info",
        f"{_skipped(skips)} while the scale found its level{fall}. "
        f"{_price(run, skips)}, which is normal",
        tally.first,
        last,
        skips,
        evidence={
            "bursts": tally.bursts,
            "scale": worst.scale_after,
            "steps_lost": skips,
            "share": _share(run, skips),
        },
    )


def fitted(run: Run, rhythm: Rhythm) -> bool:
    """Whether such a rhythm has ended because the scale fell far enough for the heaviest steps."""
    tally = overflows(run, "probe")
    return not rhythm.goes_on(run.steps - 1) and (tally is None or tally.bursts <= 1)


def _fitting(run: Run, rhythm: Rhythm) -> Finding:
    return Finding.over(
        Span(rhythm.beats, rhythm.first, rhythm.last), "scale-settling", "info",
        f"{_skipped(rhythm.beats)}, at every {ordinal(rhythm.period)} step, "
        f"until the scale was small enough for them. {_price(run, rhythm.beats)}, which is normal",
        period=rhythm.period, steps_lost=rhythm.beats, share=_share(run, rhythm.beats),
    )  # fmt: skip


def _growth_probe(run: Run) -> Iterator[Finding]:
    """A skip within a tenth of the growth interval after the scale grew (or half of it, where the
    gradients were near float16's end ever since): the doubled scale was too much."""
    tally = overflows(run, "probe")
    if tally is None:
        return
    interval = run.scale.growth_interval
    skips, steps = tally.skips, list(tally.steps)
    first, last = tally.first, tally.last
    rhythm = overflow_rhythm(run)
    if rhythm is not None:
        steps = run.bursts.recent.beside(rhythm, "probe", overflow_causes(run))
        skips = len(steps)
        if not steps:
            return
        first, last = steps[0], steps[-1]
    often = "" if interval is None else f"; it grows after {count_words(interval, 'clean step')}"
    yield Finding(
        "growth-probe-skip",
        "info",
        f"{_skipped(skips)} because the scale had grown too far{often}. "
        f"{_price(run, skips)}: that is the normal rhythm of a scale that looks for its limit",
        first,
        last,
        skips,
        evidence={
            "steps": steps,
            "growth_interval": interval,
            "steps_lost": skips,
            "share": _share(run, skips),
        },
    )


def lone_losses(run: Run) -> bool:
    """Whether losses that were inf for no other reason than a factor were rare, and single ones."""
    tally = run.bursts.tally("forward")
    if tally is None or "nonfinite-factor" not in run.facts:
        return False
    alone = tally.lone == tally.bursts and run.bursts.recent.rhythm(LOSSES) is None
    return alone and tally.skips <= RARE * run.steps


def _lone(run: Run) -> Iterator[Finding]:
    """One or two skips in a row that come neither at the start, nor after growth, nor at every n-th
    step."""
    tally = overflows(run, "other")
    if lone_losses(run):
        tally = tally or run.bursts.tally("forward")
    if tally is None or not tally.lone:
        return
    count, steps = tally.lone, list(tally.steps)
    rhythm = overflow_rhythm(run)
    if rhythm is not None:
        steps = run.bursts.recent.beside(rhythm, "other", overflow_causes(run))
        count = min(count, len(steps))
        if not count:
            return
    if count == 1:
        message = f"one overflow came by itself, at step {steps[0]}"
    else:
        message = f"{count_words(count, 'overflow')} came by themselves"
    yield Finding(
        "lone-overflow",
        "info",
        f"{message}, far from any growth of the scale. {_price(run, count)}: an unusual batch now "
        "and then is normal",
        steps[0],
        steps[-1] if rhythm is not None else tally.last,
        count,
        evidence={"steps": steps, "steps_lost": count, "share": _share(run, count)},
    )


def _skipped(skips: int) -> str:
    return f"{count_words(skips, 'step')} {were(skips)} skipped"


def _price(run: Run, skips: int) -> str:
    """What skips cost."""
    return f"That cost {skips:,} of {count_words(run.steps, 'step')} ({_percent(run, skips)})"


def _percent(run: Run, skips: int) -> str:
    return share_words(skips, run.steps)


def _share(run: Run, skips: int) -> float:
    return skips / run.steps if run.steps else 0.0


RULES = (
    Rule(
        "scale-settling",
        "info",
        "The skips of the first steps, while the scale finds its level.",
        "GradScaler starts at 65536 (or at init_scale) on purpose too high and halves the scale at "
        "each overflow until the gradients fit. The weights are left alone meanwhile.",
        "Nothing to do. A smaller init_scale saves these few steps.",
        _settling,
        source="torch.amp documentation, GradScaler (init_scale, backoff_factor); Micikevicius "
        "et al., Mixed Precision Training, 2018, section 3.2.",
        before="scaler = torch.amp.GradScaler()  # 2**16: skips until the gradients fit",
        after="scaler = torch.amp.GradScaler(init_scale=2.0**10)  # the level that was found",
    ),
    Rule(
        "growth-probe-skip",
        "info",
        "A skip right after the scale grew: the normal rhythm.",
        "After growth_interval steps without an overflow the scaler doubles the scale to use more "
        "of float16's range. When the doubled scale is too much, one step is skipped and the scale "
        "goes back. An inf in that step's gradient norm belongs to the skip.",
        "Nothing to do. Where such skips cost too many steps, raise growth_interval.",
        _growth_probe,
        source="torch.amp documentation, GradScaler (growth_factor, growth_interval).",
        before="scaler = torch.amp.GradScaler(growth_interval=100)  # a skip in about 100 steps",
        after="scaler = torch.amp.GradScaler(growth_interval=2000)  # a skip in about 2000",
    ),
    Rule(
        "lone-overflow",
        "info",
        "A rare single skip that neither settling nor growth explains.",
        "One batch gave gradients larger than usual; the step was skipped and the scale halved, "
        f"which is what the scaler is for. Up to {LONE_SKIPS} skips in a row count as one.",
        "Nothing to do while they stay rare. Clipping the loss of single samples, or a look at the "
        "batch, tells whether the data hold outliers.",
        _lone,
        source="Micikevicius et al., Mixed Precision Training, 2018, section 3.2: an overflow is "
        "met by skipping the update.",
        before="loss = F.mse_loss(model(x), y)",
        after="loss = F.huber_loss(model(x), y)  # if single samples are outliers",
    ),
)
