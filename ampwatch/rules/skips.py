"""Rules about skipped steps: which of them are the normal rhythm, and when it is a collapse."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.run import Run
from ampwatch.run.bursts import LONE_SKIPS, Burst
from ampwatch.words import count_words, number_words, scale_words

COLLAPSE_SKIPS = 8
"""A scale that worked loses a factor of 256 in 8 skips: more than a bad batch explains."""
SETTLING_SKIPS = 20
"""A new scale may have far to fall: torch starts at 2^16, so 20 skips lead below 1."""
SETTLED_SCALE = 1.0
"""Down to here a new scale may look for its level; below, fp16 has nothing to gain from it."""


def _settling(run: Run) -> Iterator[Finding]:
    tally = run.bursts.tally("settling")
    if tally is None or tally.worst is None:
        return
    worst = tally.worst
    if _collapsed(worst):
        return
    fall = ""
    if worst.scale_before is not None and worst.scale_after is not None:
        fall = f": the scale went from {scale_words(worst.scale_before)} to "
        fall += scale_words(worst.scale_after)
    yield Finding(
        "scale-settling",
        "info",
        f"{count_words(tally.skips, 'step')} skipped while the scale found its level{fall}",
        tally.first,
        tally.last,
        tally.skips,
        evidence={"bursts": tally.bursts, "scale": worst.scale_after},
    )


def _growth_probe(run: Run) -> Iterator[Finding]:
    tally = run.bursts.tally("probe")
    if tally is None:
        return
    interval = run.scale.growth_interval
    rhythm = "" if interval is None else f"; it grows after {count_words(interval, 'clean step')}"
    yield Finding(
        "growth-probe-skip",
        "info",
        f"{count_words(tally.skips, 'step')} skipped because the scale had grown too far{rhythm}",
        tally.first,
        tally.last,
        tally.skips,
        evidence={"steps": list(tally.steps), "growth_interval": interval},
    )


def _lone(run: Run) -> Iterator[Finding]:
    tally = run.bursts.tally("other")
    if tally is None or not tally.lone:
        return
    yield Finding(
        "lone-overflow",
        "info",
        f"{count_words(tally.lone, 'overflow')} by themselves, far from a growth of the scale"
        if tally.lone > 1
        else f"one overflow by itself, at step {tally.steps[0]}, far from a growth of the scale",
        tally.first,
        tally.last,
        tally.lone,
        evidence={"steps": list(tally.steps)},
    )


def _bf16_with_scaler(run: Run) -> Iterator[Finding]:
    span = run.modes.get(("bfloat16", "dynamic"))
    if span is None:
        return
    yield Finding(
        "bf16-with-scaler",
        "info",
        f"{count_words(span.count, 'step')} in bfloat16 with the scaler on: harmless, and useless",
        span.first,
        span.last,
        span.count,
        evidence={"steps": span.count},
    )


def _collapse(run: Run) -> Iterator[Finding]:
    bursts = [tally.worst for _, tally in run.bursts.tallies() if tally.worst is not None]
    collapsed = [burst for burst in bursts if _collapsed(burst)]
    if not collapsed:
        return
    worst = max(collapsed, key=lambda burst: burst.count)
    first = min(burst.first for burst in collapsed)
    message = f"{count_words(worst.count, 'step')} in a row skipped (from step {worst.first}): "
    message += f"the scale fell from {scale_words(worst.scale_before)} to "
    message += f"{scale_words(worst.scale_after)}"
    if worst.nonfinite_losses:
        message += f"; the loss itself was {number_words(worst.loss)}, so no scale can help"
    if worst.scale_after == 0:
        message += "; at 0 the scale cannot recover, and the next step taken writes NaN"
    yield Finding(
        "scale-collapse",
        "error",
        message,
        first,
        worst.last,
        worst.count,
        worst.origin,
        evidence={
            "scale_before": worst.scale_before,
            "scale_after": worst.scale_after,
            "nonfinite_losses": worst.nonfinite_losses,
        },
    )


def _collapsed(burst: Burst) -> bool:
    """Whether the scale fell further than looking for a level explains."""
    before, after = burst.scale_before, burst.scale_after
    if before is None or after is None or not after < before:
        return False
    if burst.kind == "settling":
        return burst.count >= SETTLING_SKIPS and after < SETTLED_SCALE
    return burst.count >= COLLAPSE_SKIPS


RULES = (
    Rule(
        "scale-settling",
        "info",
        "The skips of the first steps, while the scale finds its level.",
        "GradScaler starts at 65536 (or at init_scale) on purpose too high and halves the scale at "
        "each overflow until the gradients fit. The weights are left alone meanwhile.",
        "Nothing to do. A smaller init_scale saves these few steps.",
        _settling,
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
    ),
    Rule(
        "lone-overflow",
        "info",
        "A rare single skip that neither settling nor growth explains.",
        "One batch gave gradients larger than usual; the step was skipped and the scale halved, "
        f"which is what the scaler is for. Up to {LONE_SKIPS} skips in a row count as one.",
        "Nothing to do while they stay rare. If they come back at regular steps, look at what is "
        "special about those batches: they are never learned from.",
        _lone,
    ),
    Rule(
        "bf16-with-scaler",
        "info",
        "bfloat16 with an enabled scaler.",
        "bfloat16 has the range of float32, so gradients neither overflow nor vanish for want of "
        "range, and a loss scale gains nothing.",
        "Leave the scaler out: GradScaler(enabled=False), or none at all.",
        _bf16_with_scaler,
        before=(
            "scaler = torch.amp.GradScaler()\n"
            'with torch.autocast("cuda", torch.bfloat16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "scaler.scale(loss).backward()\n"
            "scaler.step(optimizer)\n"
            "scaler.update()"
        ),
        after=(
            'with torch.autocast("cuda", torch.bfloat16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "loss.backward()\n"
            "optimizer.step()"
        ),
    ),
    Rule(
        "scale-collapse",
        "error",
        "Many skips in a row; the scale heads to 0.",
        "Gradients are inf or NaN whatever the scale, so halving it does not help and nothing is "
        "learned. The cause lies elsewhere: a loss or activation that is inf or NaN already, bad "
        "inputs, weights that are NaN, or gradients that are never cleared.",
        "Look at the first skipped step: is its loss finite? Which tensor is named first? Check "
        "inputs, divisions, log and sqrt, and that zero_grad() is called.",
        _collapse,
    ),
)
