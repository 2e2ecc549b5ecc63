"""Rules about the size of gradients and of updates."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule, ending
from ampwatch.rules.levels import settled_below_one
from ampwatch.rules.mathematics import overflow_rhythm
from ampwatch.run import Run
from ampwatch.run.gradient_levels import Level
from ampwatch.run.rhythm import rhythm_of
from ampwatch.words import count_words, number_words, scale_words

UNDERFLOW_SHARE = 0.25
"""A quarter of all gradient values flushed to 0: smaller shares cost little."""
UNDERFLOW_DETAILS = 2
"""One detail step may be an odd batch, unless the scale has fallen far."""
FALLEN = 2.0**8
"""A scale that has once been so much larger has been brought down by something: eight skips."""
STILL_DETAILS = 3
STILL_SHARE = 0.9
"""Nearly every value that had a gradient kept its bits, in step after step."""
DEAD_DETAILS = 3
"""A branch that is not taken now and then has a gradient at one of three irregular steps."""
FADING_DETAILS = 2
MOST_NAMES = 20


def _underflow(run: Run) -> Iterator[Finding]:
    """Zeros at detail steps, in gradients of which what is left, times the scale, is subnormal in
    float16 (so that zeros by ReLU, by embedding rows or by masks are not taken for it); or nothing
    but zeros beside a loss that is there, at a scale that lifts little. A scale that has settled
    below 1 is told by a rule of its own, with these zeros."""
    gradients = run.gradients
    span = gradients.flushed.get(UNDERFLOW_SHARE)
    highest, now = run.levels.highest, run.final_scale()
    fallen = highest is not None and now is not None and highest >= FALLEN * now > 0
    if span is None or settled_below_one(run) is not None:
        return
    if span.count < (1 if fallen else UNDERFLOW_DETAILS) or not gradients.lasting(UNDERFLOW_SHARE):
        return
    room, limit = gradients.headroom, run.levels.overflowed
    message = f"up to {gradients.share:.0%} of all gradient values are flushed to 0 in float16"
    if now is None or (run.last is not None and run.last.scaler == "off"):
        message += ", and no scale lifts them"
    elif not fallen and limit is not None and limit > now:
        message += f"; the scale is {scale_words(now)}, and others overflow at {scale_words(limit)}"
    elif room is not None and room > 1:
        message += f", although the scale could be {count_words(round(room), 'doubling')} larger"
    back = None
    if highest is not None and now and fallen:
        doublings = math.ceil(math.log2(highest / now))
        message += f". The scale is {scale_words(now)} and has been {scale_words(highest)}"
        interval = run.scale.growth_interval
        if interval is not None and run.scale.growth_factor > 1:
            back = doublings * interval
            message += f": back there it is after {count_words(back, 'clean step')}, or at once "
            message += f"by update({number_words(highest)})"
    yield Finding.over(
        span, "gradient-underflow", "warning", message,
        share_zero=gradients.share, headroom=room, scale=now, steps_back=back,
    )  # fmt: skip


def _still(run: Run) -> Iterator[Finding]:
    """Some weights before and after the step, at detail steps: those whose gradient is not 0 and
    that keep every bit. Derived: x + d rounds to x where d is below half a unit in the last place
    of x (IEEE 754, round to nearest)."""
    seen = run.facts.get("weights-still")
    if seen is None or seen.count < max(STILL_DETAILS, run.gradients.details / 2):
        return
    dtype = seen.value("dtype")
    message = f"in {count_words(seen.count, 'detail step')} at least {STILL_SHARE:.0%} of the "
    message += "weights with a gradient kept every bit: the updates are smaller than the rounding "
    message += f"of {dtype or 'the weights'}"
    yield Finding.over(
        seen, "weights-not-moving", "warning", message, tensor=seen.value("tensor"),
        lr=None if run.last is None else run.last.lr, dtype=dtype,
    )  # fmt: skip


def _dead(run: Run) -> Iterator[Finding]:
    """A gradient that is exactly 0 at every detail step where nothing says that it was flushed, or
    that is absent at each of them; or torch's own assertion that an optimizer has none at all."""
    dead = {
        name: level
        for name, level in run.gradients.levels.items()
        if level.dead >= DEAD_DETAILS and level.dead == level.seen
    }
    if dead:
        if "forward-overflow" not in run.facts:  # an inf in a divisor makes 0 of everything
            yield _all_zero(dead)
        return
    absent = run.facts.get("missing-gradients")
    error = ending(run)
    looks = (
        0 if absent is None else max(int(d.get("looks", 0)) for _, d in absent.details or [(0, {})])
    )
    if absent is not None and looks >= DEAD_DETAILS and absent.last >= run.gradients.last_step:
        name = absent.value("tensor") or ""
        count = int(absent.details[-1][1].get("count", 1))
        others = f", and neither {_have(count - 1)}" if count > 1 else ""
        message = f"{name} has no gradient{others}, at any of {looks} detail steps: "
        message += "it takes no part in the loss" if count == 1 else "they take no part in the loss"
        yield Finding.over(absent, "dead-gradients", "warning", message, tensor=name, count=count)
    elif error is not None and "No inf checks were recorded for this optimizer" in error:
        message = "none of the parameters of an optimizer has a gradient: they take no part in the "
        message += f"loss, or it was detached. torch says: {error}"
        yield Finding.at_the_end(run, "dead-gradients", "warning", message, error=error)


def _have(count: int) -> str:
    return "has one other tensor" if count == 1 else f"have {count:,} other tensors"


def _all_zero(dead: dict[str, Level]) -> Finding:
    name, level = next(iter(dead.items()))
    others = len(dead) - 1
    message = f"the gradient of {name} is"
    if others:
        message = f"the gradients of {name} and of {count_words(others, 'other tensor')} are"
    message += f" exactly 0 at all {level.dead} detail steps"
    return Finding(
        "dead-gradients", "warning", message, level.first, level.last, level.dead, name,
        evidence={"tensors": list(dead)[:MOST_NAMES], "count": len(dead)},
    )  # fmt: skip


def _spike(run: Run) -> Iterator[Finding]:
    """Ten times the median of the last fifty losses and eight times their own spread above it, as
    losses of the same kind of step; not where it comes at every n-th step, as a term does that is
    computed now and then."""
    skipped = overflow_rhythm(run)
    for trends in run.trends.values():
        peak = trends.loss.spike
        if peak is None or rhythm_of(list(trends.loss.high)) is not None:
            continue
        if skipped is not None and skipped.holds(peak.step):
            continue
        message = f"the loss leapt to {number_words(peak.value)} at step {peak.step}, "
        message += f"{number_words(peak.value / peak.usual)} times its level of "
        message += number_words(peak.usual)
        yield Finding.over(
            peak.span, "loss-spike", "warning", message, loss=peak.value, usual=peak.usual
        )
        return


def _exploding(run: Run) -> Iterator[Finding]:
    """A norm a hundred times the median of an earlier window, three steps in a row, and not small;
    or a forward pass that went beyond even float32."""
    for trends in run.trends.values():
        peak = trends.norm.explosion
        if peak is None:
            continue
        message = f"the gradient norm rose to {number_words(peak.value)} by step {peak.step}, "
        message += f"{number_words(peak.value / peak.usual)} times what it was before "
        message += f"({number_words(peak.usual)})"
        yield Finding.over(
            peak.span, "exploding-gradients", "warning", message,
            grad_norm=peak.value, usual=peak.usual,
        )  # fmt: skip
        return
    seen = run.facts.get("diverged")
    if seen is not None:
        message = f"the training diverged: at step {seen.first} the forward pass went beyond even "
        message += "float32's 3e38"
        yield Finding.over(
            seen, "exploding-gradients", "warning", message,
            module=seen.value("module"), largest_input=seen.value("largest"),
        )  # fmt: skip


def _vanishing(run: Run) -> Iterator[Finding]:
    """At detail steps: the root mean square of the first layer's gradient is below a millionth of
    that of the largest one. In float16, where the end of such a chain is flushed to 0, the last
    layer counts that has values left."""
    gradients = run.gradients
    span = gradients.fading
    if span is None or span.count < FADING_DETAILS or span.count * 2 <= gradients.details:
        return
    message = f"the gradient of the first layer is {number_words(gradients.fading_ratio)} times "
    message += "that of the largest one: on the way back from the loss it all but vanishes"
    yield Finding.over(
        span, "vanishing-gradients", "warning", message,
        tensor=gradients.fading_tensor, ratio=gradients.fading_ratio,
    )  # fmt: skip


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
        source="Micikevicius et al., Mixed Precision Training, 2018, section 3.2 and figure 3.",
        before="loss.backward()\noptimizer.step()",
        after="scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
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
        source="Micikevicius et al., Mixed Precision Training, 2018, section 3.1; Kahan, Further "
        "Remarks on Reducing Truncation Errors, 1965 (compensated summation); derived "
        "from round to nearest.",
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
        source="Lu et al., Dying ReLU and Initialization, 2019; torch.amp documentation, "
        "GradScaler.step; nerfstudio PR 1919, Lightning PR 7975.",
        before="features = backbone(x).detach()\nloss = loss_fn(head(features), y)",
        after="features = backbone(x)\nloss = loss_fn(head(features), y)",
    ),
    Rule(
        "loss-spike",
        "warning",
        "The loss leapt far above its level.",
        "Ten times the median of the last fifty losses, and far outside their own spread: an "
        "unusual batch, a learning rate that is too large, or a step that went wrong.",
        "Look at the batch of that step; lower the learning rate, lengthen warm-up, clip.",
        _spike,
        source="Derived: median and median absolute deviation as robust level and spread "
        "(Hampel, The Influence Curve and Its Role in Robust Estimation, 1974).",
        before="scaler.scale(loss).backward()\nscaler.step(optimizer)",
        after=(
            "scaler.scale(loss).backward()\n"
            "scaler.unscale_(optimizer)\n"
            "clip_grad_norm_(model.parameters(), 1.0)\n"
            "scaler.step(optimizer)"
        ),
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
        source="Pascanu et al., On the difficulty of training recurrent neural networks, 2013.",
        before=(
            "optimizer = torch.optim.SGD(model.parameters(), lr=1.0)\n"
            "loss.backward()\n"
            "optimizer.step()"
        ),
        after=(
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "loss.backward()\n"
            "clip_grad_norm_(model.parameters(), 1.0)\n"
            "optimizer.step()"
        ),
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
        source="Hochreiter, 1991, and Bengio et al., Learning Long-Term Dependencies with "
        "Gradient Descent Is Difficult, 1994; Glorot and Bengio, 2010.",
        before="for layer in layers:\n    x = torch.sigmoid(layer(x))",
        after="for layer, norm in zip(layers, norms):\n    x = x + torch.relu(layer(norm(x)))",
    ),
)
