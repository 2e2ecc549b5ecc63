"""Rules about the size of gradients and of updates."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.run import Run
from ampwatch.words import count_words, number_words

UNDERFLOW_SHARE = 0.25
"""A quarter of all gradient values flushed to 0: smaller shares cost little."""
UNDERFLOW_DETAILS = 2
"""One detail step may be an odd batch."""
STILL_DETAILS = 3
STILL_SHARE = 0.9
"""Nearly every value that had a gradient kept its bits, in step after step."""
DEAD_DETAILS = 3
FADING_DETAILS = 2
ABSENT_DETAILS = 3


def _underflow(run: Run) -> Iterator[Finding]:
    gradients = run.gradients
    span = gradients.flushed.get(UNDERFLOW_SHARE)
    if span is None or span.count < UNDERFLOW_DETAILS:
        return
    room = gradients.headroom
    message = f"up to {gradients.share:.0%} of all gradient values are flushed to 0 in float16"
    if room is not None and room > 1:
        message += f", although the scale could be {room:.0f} doublings larger"
    yield Finding(
        "gradient-underflow",
        "warning",
        message,
        span.first,
        span.last,
        span.count,
        evidence={"share_zero": gradients.share, "headroom": room},
    )


def _still(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("weights-still")
    if seen is None or seen.count < max(STILL_DETAILS, run.gradients.details / 2):
        return
    yield Finding(
        "weights-not-moving",
        "warning",
        f"in {count_words(seen.count, 'detail step')} at least {STILL_SHARE:.0%} of the weights "
        "with a gradient kept every bit: the updates are smaller than the rounding of "
        f"{seen.value('dtype') or 'the weights'}",
        seen.first,
        seen.last,
        seen.count,
        seen.value("tensor"),
        evidence={"lr": None if run.last is None else run.last.lr, "dtype": seen.value("dtype")},
    )


def _dead(run: Run) -> Iterator[Finding]:
    dead = {
        name: level
        for name, level in run.gradients.levels.items()
        if level.dead >= DEAD_DETAILS and level.dead == level.seen
    }
    absent = run.facts.get("missing-gradients")
    error = None if run.end is None else run.end.error
    if dead:
        name, level = next(iter(dead.items()))
        others = len(dead) - 1
        message = f"the gradient of {name}"
        message += f" and of {count_words(others, 'other tensor')}" if others else ""
        message += f" is exactly 0 at all {level.dead} detail steps"
        yield Finding(
            "dead-gradients", "warning", message, level.first, level.last, level.dead, name,
            evidence={"tensors": list(dead)[:20], "count": len(dead)},
        )  # fmt: skip
    elif absent is not None and absent.count >= max(ABSENT_DETAILS, run.gradients.details):
        name = absent.value("tensor") or ""
        others = int(absent.value("count") or 1) - 1
        message = f"{name} has no gradient"
        message += f", nor have {count_words(others, 'other tensor')}" if others else ""
        message += f" at any of {absent.count} detail steps: it takes no part in the loss"
        yield Finding(
            "dead-gradients", "warning", message, absent.first, absent.last, absent.count, name,
            evidence={"count": others + 1},
        )  # fmt: skip
    elif error is not None and "No inf checks were recorded for this optimizer" in error:
        last = None if run.last is None else run.last.optimizer
        yield Finding(
            "dead-gradients",
            "warning",
            f"none of the parameters of {last or 'the optimizer'} has a gradient: they take no "
            f"part in the loss, or it was detached. torch says: {error}",
            run.steps,
            run.steps,
            evidence={"error": error},
        )


def _spike(run: Run) -> Iterator[Finding]:
    for trends in run.trends.values():
        peak = trends.loss.spike
        if peak is None:
            continue
        yield Finding(
            "loss-spike",
            "warning",
            f"the loss leapt to {number_words(peak.value)} at step {peak.step}, "
            f"{peak.value / peak.usual:.0f} times its level of {number_words(peak.usual)}",
            peak.span.first,
            peak.span.last,
            peak.span.count,
            evidence={"loss": peak.value, "usual": peak.usual},
        )
        return


def _exploding(run: Run) -> Iterator[Finding]:
    for trends in run.trends.values():
        peak = trends.norm.explosion
        if peak is None:
            continue
        yield Finding(
            "exploding-gradients",
            "warning",
            f"the gradient norm rose to {number_words(peak.value)} by step {peak.step}, "
            f"{number_words(peak.value / peak.usual)} times what it was before "
            f"({number_words(peak.usual)})",
            peak.span.first,
            peak.span.last,
            peak.span.count,
            evidence={"grad_norm": peak.value, "usual": peak.usual},
        )
        return
    seen = run.facts.get("diverged")
    if seen is not None:
        yield Finding(
            "exploding-gradients",
            "warning",
            f"the training diverged: at step {seen.first} the forward pass went beyond even "
            "float32's 3e38",
            seen.first,
            seen.last,
            seen.count,
            module=seen.value("module"),
            evidence={"largest_input": seen.value("largest")},
        )


def _vanishing(run: Run) -> Iterator[Finding]:
    span = run.gradients.fading
    stats = run.tensors
    if span is None or span.count < FADING_DETAILS or span.count * 2 <= run.gradients.details:
        return
    name = stats.name[-1] if stats is not None and stats.name else None
    yield Finding(
        "vanishing-gradients",
        "warning",
        f"the gradient of the first layer is {number_words(run.gradients.fading_ratio)} times "
        "that of the largest one: on the way back from the loss it all but vanishes",
        span.first,
        span.last,
        span.count,
        name,
        evidence={"ratio": run.gradients.fading_ratio},
    )


RULES = (
    Rule(
        "gradient-underflow",
        "warning",
        "A large share of the gradients that should be there is flushed to zero.",
        "Gradients of activations below 2^-24 become 0 in float16, below 2^-14 they lose digits "
        "(Micikevicius et al., 2018). Zeros are counted at detail steps; they are called underflow "
        "where what is left of the same gradient, times the scale, is subnormal in float16, so "
        "that zeros by ReLU, by embedding rows or by masks are not taken for it.",
        "Scale the loss, or scale it more: a dynamic GradScaler finds the largest scale that fits. "
        "After a burst of bad batches update(new_scale) puts it back at once.",
        _underflow,
    ),
    Rule(
        "weights-not-moving",
        "warning",
        "Updates round away in the weights' own precision.",
        "A weight w keeps its bits when the update is below about half a unit in the last place: "
        "6e-8 w in float32, 5e-4 w in float16, 4e-3 w in bfloat16. Recognised at detail steps by "
        "comparing some weights before and after the step, where their gradient is not 0.",
        "Keep the weights in float32 (autocast does that for you), use a larger learning rate, or "
        "an optimizer with compensated or stochastic rounding.",
        _still,
        before="model = Net().to(torch.bfloat16)",
        after='model = Net()\nwith torch.autocast("cuda", torch.bfloat16):\n    ...',
    ),
    Rule(
        "dead-gradients",
        "warning",
        "A trained parameter's gradient is exactly zero or absent for many steps, not by "
        "underflow.",
        "The parameter takes no part in the loss: a detached tensor, an unused branch, or units "
        "that are never active. It is told apart from underflow, where the gradient nearer the "
        "loss is close to float16's end too.",
        "Look for detach(), no_grad() or a branch that is not taken on the way to the loss; leave "
        "out of the optimizer what is not to be trained.",
        _dead,
    ),
    Rule(
        "loss-spike",
        "warning",
        "The loss leapt far above its level.",
        "Ten times the median of the last fifty losses, and far outside their own spread: an "
        "unusual batch, a learning rate that is too large, or a step that went wrong.",
        "Look at the batch of that step; lower the learning rate, lengthen warm-up, clip.",
        _spike,
    ),
    Rule(
        "exploding-gradients",
        "warning",
        "The gradient norm rose by orders of magnitude.",
        "A hundred times the level of an earlier window, step after step. Deep or recurrent "
        "networks multiply gradients layer by layer (Pascanu et al., On the difficulty of training "
        "recurrent neural networks, 2013); a learning rate that is too large does it too.",
        "Clip the norm (after unscale_), lower the learning rate, look at the initialisation.",
        _exploding,
    ),
    Rule(
        "vanishing-gradients",
        "warning",
        "The gradient fades on its way to the first layers.",
        "Saturated activations and long chains multiply gradients by small factors. Recognised at "
        "detail steps: root mean square of the first layer's gradient below a millionth of the "
        "largest layer's. It is told apart from underflow, where the values are 0.",
        "Use residual connections, normalisation, ReLU-like activations, or another "
        "initialisation.",
        _vanishing,
    ),
)
