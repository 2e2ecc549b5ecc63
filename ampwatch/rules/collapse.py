"""The rule about a scale that falls and falls, and what makes it fall."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ampwatch.rules.finding import Finding, Rule
from ampwatch.rules.places import place_words
from ampwatch.run import Run
from ampwatch.run.burst import Burst
from ampwatch.run.fact_log import Seen
from ampwatch.run.scale_levels import FATAL_SCALE
from ampwatch.words import count_words, number_words, scale_words

COLLAPSE_SKIPS = 8
"""A scale that worked loses a factor of 256 in 8 skips: more than a bad batch explains."""
SETTLING_SKIPS = 20
"""A new scale may have far to fall: torch starts at 2^16, so 20 skips lead below 1."""
SETTLED_SCALE = 1.0
"""Down to here a new scale may look for its level; below, fp16 has nothing to gain from it."""
WARNED_SKIPS = 64
"""So many skips ahead it is said."""


class Cause(NamedTuple):
    """Why gradients are inf or NaN at any scale."""

    kind: str
    """"input", "forward pass", "loss", "parameter", "left over" or "unknown"."""
    words: str
    tensor: str | None = None
    module: str | None = None


def collapsed(burst: Burst) -> bool:
    """Whether the scale fell further than looking for a level explains."""
    before, after = burst.scale_before, burst.scale_after
    if before is None or after is None or not after < before or burst.kind == "static":
        return False
    if burst.kind == "settling":
        return burst.count >= SETTLING_SKIPS and after < SETTLED_SCALE
    return burst.count >= COLLAPSE_SKIPS


def worst_bursts(run: Run) -> list[Burst]:
    """The longest row of skips of each kind."""
    return [tally.worst for _, tally in run.bursts.tallies() if tally.worst is not None]


def cause_of(run: Run, burst: Burst) -> Cause:
    """What the facts of the burst's steps, and its numbers, say of the cause."""

    def told(name: str) -> Seen | None:
        seen = run.facts.get(name)
        within = seen is not None and seen.first <= burst.last and seen.last >= burst.first
        return seen if within else None

    if seen := told("stale-gradients"):
        return Cause("left over", "the gradients of an earlier step are never cleared",
                     seen.value("tensor"))  # fmt: skip
    if seen := told("nonfinite-input"):
        name = seen.value("name")
        words = "the input batch holds inf or NaN" + (f" (the variable {name})" if name else "")
        return Cause("input", words)
    if seen := told("weights-nonfinite"):
        name = seen.value("tensor")
        return Cause("parameter", f"the weights are inf or NaN themselves ({name or 'unnamed'})",
                     name)  # fmt: skip
    for name in ("mask-overflow", "epsilon-underflow", "forward-overflow", "diverged", "nan-born"):
        if seen := told(name):
            return _of_operation(seen)
    if seen := told("nonfinite-factor"):
        return Cause("loss", "the loss was multiplied by a number that is inf or NaN")
    if seen := told("backward-origin"):
        words = f"the backward pass, first{place_words(seen) or ' in ' + str(burst.origin)}"
        return Cause("parameter", words, burst.origin, seen.value("module"))
    if burst.nonfinite_losses:
        return Cause("loss", f"the loss itself is {number_words(burst.loss)}")
    if burst.origin is not None:
        return Cause("parameter", f"the gradients, first that of {burst.origin}, beside a finite "
                     "loss", burst.origin)  # fmt: skip
    return Cause("unknown", "the gradients")


def _of_operation(seen: Seen) -> Cause:
    """The first operation that made inf or NaN: inside the model, or in the loss behind it."""
    module = seen.value("module")
    if seen.value("backward"):
        return Cause("parameter", f"the backward pass,{place_words(seen)}", None, module)
    if module is not None:
        return Cause("forward pass", f"the forward pass,{place_words(seen)}", None, module)
    after = seen.value("after")
    where = "forward pass" if after else "loss"
    return Cause(where, f"the {where},{place_words(seen)}", None, after)


def _collapse(run: Run) -> Iterator[Finding]:
    """Eight skips in a row on a scale that had worked, or twenty that bring a new one below 1: a
    scale that is too large needs no more than that. Derived from torch's factors."""
    fallen = [burst for burst in worst_bursts(run) if collapsed(burst)]
    if not fallen:
        return
    worst = max(fallen, key=lambda burst: burst.count)
    cause = cause_of(run, worst)
    left = skips_left(worst.scale_after, run.scale.backoff_factor)
    message = f"the scaler skipped {count_words(worst.count, 'step')} in a row, from step "
    message += f"{worst.first} on: the scale fell from {scale_words(worst.scale_before)} to "
    message += f"{scale_words(worst.scale_after)}. The cause: {cause.words}"
    if worst.nonfinite_losses:
        message += f"; the loss itself was {number_words(worst.loss)}, so no scale can help"
    if left is not None and left <= WARNED_SKIPS:
        message += f". {_fatal_words(run, worst, left)}"
    yield Finding(
        "scale-collapse",
        "error",
        message,
        min(burst.first for burst in fallen),
        worst.last,
        worst.count,
        cause.tensor or (worst.origin if cause.kind == "unknown" else None),
        cause.module,
        evidence={
            "cause": cause.kind,
            "scale_before": worst.scale_before,
            "scale_after": worst.scale_after,
            "nonfinite_losses": worst.nonfinite_losses,
            "steps_lost": sum(burst.count for burst in fallen),
            "skips_left": left,
        },
    )


def skips_left(scale: float | None, backoff: float) -> int | None:
    """How many more skips bring the scale down to where 1 / scale is inf in float32."""
    if scale is None or not 0 < backoff < 1 or not math.isfinite(scale):
        return None
    if scale <= FATAL_SCALE:
        return 0
    return math.ceil((math.log2(scale) - math.log2(FATAL_SCALE)) / -math.log2(backoff) - 1e-9)


def _fatal_words(run: Run, burst: Burst, left: int) -> str:
    taken = run.levels.fatal
    if taken is not None and taken.first > burst.first:
        return (
            f"Step {taken.first} was taken at such a scale, and wrote inf or NaN into the weights"
        )
    if left:
        return (
            f"After {count_words(left, 'more skip')} it is so small that 1 / scale is inf in "
            "float32: then the next clean batch destroys the weights"
        )
    return (
        "It cannot recover: 1 / scale is inf in float32, so the next clean batch passes the check "
        "and destroys the weights. Stop, or set the scale by update(new_scale) before it comes"
    )


RULES = (
    Rule(
        "scale-collapse",
        "error",
        "Many skips in a row; the scale heads to 0.",
        "Gradients are inf or NaN whatever the scale, so halving it does not help and nothing is "
        "learned. The cause lies elsewhere: a loss or activation that is inf or NaN already, bad "
        "inputs, weights that are NaN, or gradients that are never cleared. From 2^-128 on the "
        "scale cannot be divided out any more, and the first clean batch writes NaN into the "
        "weights, although the scaler found nothing wrong with its gradients.",
        "Put right what is named as the cause. Until then stop the run after a few skips in a row, "
        "long before the scale is lost.",
        _collapse,
        source="NVIDIA/apex issue 318 (the scale reaches 0); torch/amp/grad_scaler.py: 1 / scale "
        "is rounded to float32, which ends at 2^128, and gradients are checked before it.",
        before="scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
        after=(
            "if not torch.isfinite(loss):\n"
            '    raise RuntimeError(f"the loss is {loss.item()} at step {step}")\n'
            "scaler.scale(loss).backward()\n"
            "scaler.step(optimizer)\n"
            "scaler.update()"
        ),
    ),
)
