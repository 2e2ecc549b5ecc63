"""Rules about the level of the scale: fixed too high or too low, growing without end, below 1."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.run import Run
from ampwatch.words import count_words, number_words, scale_words, share_words

STATIC_SKIPS = 5
STATIC_SHARE = 0.5
"""A fixed scale at which most steps overflow; a few may be one bad stretch of data."""
PROBES_COST = 1 / 50
"""torch's interval of 2000 costs a step in 2000; more than one in 50 is felt."""
FEWEST_PROBES = 3
RUNAWAY_SCALE = 2.0**30
"""float16's smallest number times this is 64: no gradient needs more. torch's issue 98828 had to
keep the scale from becoming inf."""
BELOW_ONE_STEPS = 5
"""Fewer taken steps below 1 are a scale on its way, not one that has settled."""
NEVER = 100_000
"""A growth interval that is as good as none."""
LOST_SHARE = 0.05
SPARE_DOUBLINGS = 3.0
"""Headroom that a scale may leave unused: growth by doubling keeps one or two in reserve."""


def _too_high(run: Run) -> Iterator[Finding]:
    levels = run.levels
    held = levels.held_skips
    tally = run.bursts.tally("static")
    if held is None or tally is None or held.count < STATIC_SKIPS:
        return
    steps = run.steps - (tally.first or 0)
    if held.count < STATIC_SHARE * steps:
        return
    scale = None if tally.worst is None else tally.worst.scale_before
    best = _best_scale(run)
    skips = max(tally.skips, held.count)
    message = f"{count_words(skips, 'step')} of {steps:,} overflowed at a scale of "
    message += f"{scale_words(scale)} that stays as it is"
    if best is not None and scale is not None and best < scale:
        message += f"; the gradients that were finite would fit at {scale_words(best)}"
    yield Finding(
        "static-scale-too-high",
        "error",
        message,
        tally.first,
        tally.last,
        skips,
        evidence={"scale": scale, "steps": steps, "best_scale": best},
    )


def _best_scale(run: Run) -> float | None:
    """The power of two that brings the largest gradient that was seen just below float16's end."""
    stats = run.tensors
    if stats is None:
        return None
    finite = [each for each in stats.max if math.isfinite(each) and each > 0]
    finite += [2.0 ** (row.first + len(row.counts)) for row in stats.exponents if row.counts]
    if not finite:
        return None
    return 2.0 ** math.floor(math.log2(65504.0 / max(finite)) - 1)


def _too_low(run: Run) -> Iterator[Finding]:
    gradients, levels = run.gradients, run.levels
    flushed = gradients.flushed.get(LOST_SHARE)
    if flushed is None or levels.held_skips is not None:
        return
    interval = run.scale.growth_interval or 0
    if not (levels.static or interval >= NEVER or run.scale.growth_factor <= 1.0):
        return
    room = gradients.headroom
    if room is not None and room < SPARE_DOUBLINGS:
        return
    last = run.last
    if last is None or last.scale is None:
        return
    best = _best_scale(run)
    yield Finding(
        "static-scale-too-low",
        "warning",
        f"{gradients.share:.0%} of the gradient values are flushed to 0 at a scale of "
        f"{scale_words(last.scale)} that does not grow"
        + ("" if room is None else f", with room for {room:.0f} more doublings")
        + ("" if best is None else f": {scale_words(best)} would still fit"),
        flushed.first,
        flushed.last,
        flushed.count,
        evidence={
            "scale": last.scale,
            "share_zero": gradients.share,
            "headroom": gradients.headroom,
            "best_scale": best,
        },
    )


def _interval(run: Run) -> Iterator[Finding]:
    tally = run.bursts.tally("probe")
    interval = run.scale.growth_interval
    if tally is None or tally.first is None or tally.bursts < FEWEST_PROBES:
        return
    steps = run.steps - max(0, tally.first - (interval or 0))
    if tally.skips <= PROBES_COST * steps:
        return
    yield Finding(
        "growth-interval-too-short",
        "warning",
        f"{count_words(tally.skips, 'step')} of {steps:,} ({share_words(tally.skips, steps)}) were "
        "lost to trying a larger scale"
        + ("" if interval is None else f" every {count_words(interval, 'clean step')}"),
        tally.first,
        tally.last,
        tally.skips,
        evidence={"growth_interval": interval, "share": tally.skips / steps},
    )


def _runaway(run: Run) -> Iterator[Finding]:
    grown = run.levels.grown_to
    last = run.last
    if grown is None or grown < RUNAWAY_SCALE or last is None or last.dtype == "bfloat16":
        return
    norm = last.grad_norm
    yield Finding(
        "scale-runaway",
        "warning",
        f"the scale has grown to {scale_words(grown)} and nothing overflows: "
        + (
            f"the gradients are tiny (norm {number_words(norm)})"
            if norm
            else "the gradients are zero"
        )
        + ("" if last.dtype == "float16" else ", and nothing is computed in float16"),
        run.levels.grown_step,
        last.step,
        1,
        evidence={"scale": grown, "grad_norm": norm, "dtype": last.dtype},
    )


def _below_one(run: Run) -> Iterator[Finding]:
    span = run.levels.below_one
    if span is None or span.count < BELOW_ONE_STEPS:
        return
    lowest = run.levels.lowest_taken
    yield Finding(
        "scale-below-one",
        "warning",
        f"{count_words(span.count, 'step')} taken with a scale below 1 (down to "
        f"{scale_words(lowest)}): gradients overflow float16 even without any scaling",
        span.first,
        span.last,
        span.count,
        evidence={"scale": lowest},
    )


RULES = (
    Rule(
        "static-scale-too-high",
        "error",
        "The scale does not adapt, and overflows on most steps.",
        "A scale that is set by hand, by update(new_scale) or by factors of 1, stays where it is "
        "however often the gradients overflow, and each overflow is a step that is not taken. "
        "Recognised where the scale is the same after a skip as before, and at least half of the "
        "steps are skipped.",
        "Let the scaler adapt: call update() without an argument. Or fix the scale at the value "
        "named here.",
        _too_high,
        before="scaler.update(new_scale=2.0**22)",
        after="scaler.update()",
    ),
    Rule(
        "static-scale-too-low",
        "warning",
        "The scale does not adapt, and a share of the gradients is flushed with headroom to spare.",
        "Gradients below 2^-24 become 0 in float16. A larger scale would lift them, and the "
        "largest gradients leave room for it: headroom is log2(65504 / largest scaled gradient). "
        "Recognised at detail steps, where the growth counter stands still or the scale is static.",
        "Let the scaler adapt, or fix the scale at the value named here.",
        _too_low,
        before="scaler = GradScaler(init_scale=1.0, growth_interval=10**9)",
        after="scaler = GradScaler()",
    ),
    Rule(
        "growth-interval-too-short",
        "warning",
        "Skips by growth cost more than about 1 step in 50.",
        "Each time the scale grows one step too far, a step is lost. With growth_interval n that "
        "is about one step in n, for ever.",
        "Raise growth_interval; torch's default is 2000.",
        _interval,
        before="scaler = GradScaler(growth_interval=20)",
        after="scaler = GradScaler(growth_interval=2000)",
    ),
    Rule(
        "scale-runaway",
        "warning",
        "The scale keeps growing beyond any use, since gradients are zero or tiny.",
        "Nothing but an overflow stops a scale from growing. One beyond 2^30 tells that nothing "
        "can overflow: the gradients are zero, the loss is tiny, or backward does not run in "
        "float16 at all. At 2^127 the scale itself is at the end of float32 (pytorch issue 98828).",
        "Ask whether a scaler is needed here; look whether the loss is what you mean it to be, "
        "and whether its gradients reach the parameters.",
        _runaway,
    ),
    Rule(
        "scale-below-one",
        "warning",
        "The scale settles below 1: something needs a wider range than float16.",
        "Loss scaling lifts small gradients into float16's range. A scale below 1 pushes large "
        "ones down, so small ones are lost; the model, often one pretrained in bfloat16, needs a "
        "wider range (pytorch issues 99640 and 96755).",
        "Train in bfloat16, or keep the layers with the largest gradients in float32.",
        _below_one,
    ),
)
