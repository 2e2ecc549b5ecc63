"""Rules about the level of the scale: fixed too high or too low, growing without end, below 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ampwatch.formats import FLOAT16
from ampwatch.rules.finding import Finding, Rule
from ampwatch.rules.mathematics import overflow_causes
from ampwatch.run import Run
from ampwatch.run.ranges import Fit, fit, spread_of
from ampwatch.run.scale_levels import RUNAWAY_SCALE
from ampwatch.run.spans import Span
from ampwatch.words import count_words, number_words, scale_words, share_words

STATIC_SKIPS = 5
STATIC_SHARE = 0.5
"""A fixed scale at which most steps overflow; a few may be one bad stretch of data."""
BELOW_ONE_STEPS = 5
"""Fewer taken steps below 1 are a scale on its way, not one that has settled."""
NEVER = 100_000
"""A growth interval that is as good as none."""
LOST_SHARE = 0.05
"""Of all gradient values: less than one in twenty does little harm."""
SPARE_DOUBLINGS = 3.0
"""Headroom that a scale may leave unused: growth by doubling keeps one or two in reserve."""
RESERVE = 1
"""Doublings kept in reserve by the scale that is named as the best one: the next batch may have
larger gradients, and those of activations may be larger than those of parameters."""


def _too_high(run: Run) -> Iterator[Finding]:
    """Skips after which the scale is the same as before (or hardly lower), on at least half of the
    steps since the first of them."""
    held = run.levels.held_skips
    tally = run.bursts.tally("static")
    if tally is None or tally.first is None or tally.last is None:
        return
    skips = max(tally.skips, 0 if held is None else held.count)
    steps = run.steps - tally.first
    if skips < STATIC_SKIPS or skips < STATIC_SHARE * steps:
        return
    scale = None if tally.worst is None else tally.worst.scale_before
    best = best_scale(run)
    if best is not None and scale is not None and best >= scale:
        best = None  # of batches smaller than those that overflow
    message = f"{skips:,} of {count_words(steps, 'step')} ({share_words(skips, steps)}) overflowed "
    message += f"at a scale of {scale_words(scale)} that stays as it is"
    if best is not None:
        message += f"; {scale_words(best)} would have fitted those that did not overflow before"
    else:
        message += "; which scale would fit is not known before one step does: one that adapts "
        message += "finds it within a few skips"
    yield Finding.over(
        Span(skips, tally.first, tally.last), "static-scale-too-high", "error", message,
        scale=scale, steps=steps, steps_lost=skips, best_scale=best,
    )  # fmt: skip


def _gradients_fit(run: Run) -> Fit | None:
    """How the gradients of the latest detail step without inf and NaN fit float16."""
    stats = run.finite_tensors
    spread = None if stats is None else spread_of(stats)
    return None if stats is None or spread is None else fit(spread, FLOAT16, stats.scale)


def best_scale(run: Run) -> float | None:
    """The largest power of two that loses nothing at the top, less a doubling in reserve; no less
    than what lifts the smallest gradient that is known into float16."""
    told = _gradients_fit(run)
    if told is None or told.highest is None:
        return None
    power = told.highest - RESERVE
    if told.lowest is not None and told.lossless:
        power = max(power, told.lowest)
    return 2.0**power


def _too_low(run: Run) -> Iterator[Finding]:
    """A growth counter that stands still (or an interval nobody lives to see), gradient values
    flushed at detail steps, and room: log2(65504 / largest scaled gradient) doublings of it."""
    gradients, levels = run.gradients, run.levels
    flushed = gradients.flushed.get(LOST_SHARE)
    if flushed is None or levels.held_skips is not None:
        return
    interval = run.scale.growth_interval or 0
    if not (levels.static or interval >= NEVER or run.scale.growth_factor <= 1.0):
        return
    room, last = gradients.headroom, run.last
    if (room is not None and room < SPARE_DOUBLINGS) or last is None or last.scale is None:
        return
    best = best_scale(run)
    message = f"up to {gradients.share:.0%} of the gradient values are flushed to 0 at a scale of "
    message += f"{scale_words(last.scale)} that does not grow"
    if room is not None:
        message += f", with room for {count_words(round(room), 'more doubling')}"
    if best is not None and best > last.scale:
        message += f": {scale_words(best)} would still fit"
    yield Finding.over(
        flushed, "static-scale-too-low", "warning", message,
        scale=last.scale, share_zero=gradients.share, headroom=room, best_scale=best,
        **_lossless_range(run),
    )  # fmt: skip


def _lossless_range(run: Run) -> dict[str, Any]:
    """The scales that would lose none of the gradients that are known, as evidence."""
    told = _gradients_fit(run)
    if told is None or told.lowest is None or told.highest is None or not told.lossless:
        return {}
    return {"smallest_scale": 2.0**told.lowest, "largest_scale": 2.0**told.highest}


def _runaway(run: Run) -> Iterator[Finding]:
    """A scale that has grown beyond 2^30 with no overflow since, or beyond 2^64 at all. Derived:
    2^-24, float16's smallest number, times 2^30 is 64, so a larger one lifts nothing."""
    grown = run.levels.grown_to
    last = run.last
    if not run_away(run) or last is None:
        return
    norm = last.grad_norm
    size = f"tiny (norm {number_words(norm)})" if norm else "zero"
    message = f"the scale has grown to {scale_words(grown)}, where it lifts nothing: the gradients "
    message += f"are {size}"
    message += "" if last.dtype == "float16" else ", and nothing is computed in float16"
    yield Finding.over(
        Span(1, run.levels.grown_step, run.levels.grown_step), "scale-runaway", "warning", message,
        scale=grown, grad_norm=norm, dtype=last.dtype,
    )  # fmt: skip


def run_away(run: Run) -> bool:
    """Whether the scale has lost its meaning. One of bfloat16 had none before."""
    grown, last = run.levels.grown_to, run.last
    bfloat16 = last is not None and last.dtype == "bfloat16"
    return grown is not None and grown >= RUNAWAY_SCALE and not bfloat16


def _below_one(run: Run) -> Iterator[Finding]:
    """Steps that were taken at a scale below 1, apart from those beside skips, when it is still
    falling, and those after losses that were inf or NaN, or NaN by mathematics, which brought it
    down."""
    span = settled_below_one(run)
    if span is None:
        return
    lowest, share = run.levels.lowest_taken, run.gradients.share
    message = f"{count_words(span.count, 'step')} were taken with a scale below 1 (down to "
    message += f"{scale_words(lowest)}): gradients overflow float16 even without any scaling"
    if share >= LOST_SHARE:
        message += f", and up to {share:.0%} of their values are flushed to 0 at the other end"
    yield Finding.over(
        span, "scale-below-one", "warning", message, scale=lowest, share_zero=share or None
    )


def settled_below_one(run: Run) -> Span | None:
    """Where steps were taken below 1 because of the range of the gradients; None for a few."""
    span: Span | None = None
    for cause in overflow_causes(run) & run.levels.below_one.keys():
        here = run.levels.below_one[cause]
        span = here if span is None else span.joined(here)
    return None if span is None or span.count < BELOW_ONE_STEPS else span


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
        source="Micikevicius et al., Mixed Precision Training, 2018, section 3.2 (choosing a "
        "constant factor: below the value at which the largest gradient overflows).",
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
        source="Micikevicius et al., Mixed Precision Training, 2018, section 3.2 and figure 3 "
        "(gradients below 2^-24 become zero).",
        before="scaler = GradScaler(init_scale=1.0, growth_interval=10**9)",
        after="scaler = GradScaler()",
    ),
    Rule(
        "scale-runaway",
        "warning",
        "The scale keeps growing beyond any use, since gradients are zero or tiny.",
        "Nothing but an overflow stops a scale from growing. One beyond 2^30 tells that nothing "
        "can overflow: the gradients are zero, the loss is tiny, or backward does not run in "
        "float16 at all. At 2^127 the scale itself is at the end of float32 (pytorch issue 98828).",
        "Ask whether a scaler is needed here; look whether the loss is what you mean it to be, "
        "and whether its gradients reach the parameters. In float32 leave the scaler out.",
        _runaway,
        source="pytorch issue 98828 and the fix of it; the bound of 2^30 is derived from "
        "float16's range.",
        before="loss = F.mse_loss(model(x), y) * 1e-12\nscaler.scale(loss).backward()",
        after="loss = F.mse_loss(model(x), y)\nscaler.scale(loss).backward()",
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
        source="pytorch issues 99640 and 96755; torch.amp documentation, Gradient Scaling (a "
        "scale below 1 is a sign of a model that needs another format).",
        before='with torch.autocast("cuda", torch.float16):\n    loss = loss_fn(model(x), y)',
        after='with torch.autocast("cuda", torch.bfloat16):\n    loss = loss_fn(model(x), y)',
    ),
)
