"""Rules about gradients that carry the scale where they must not, or lack it where they must."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule, ending
from ampwatch.run import Run
from ampwatch.run.fact_log import Seen
from ampwatch.run.hand_clips import for_scaled
from ampwatch.words import count_words, number_words


def _unscaled(run: Run) -> Iterator[Finding]:
    """From the ledger of calls: a backward pass whose root did not come out of ``scale()``, then
    ``scaler.step()`` on parameters it reached. Derived: ``unscale_`` divides by the scale whatever
    was done to the loss."""
    seen = run.facts.get("unscaled-backward")
    if seen is None:
        return
    scale = None if run.last is None else run.last.scale
    message = f"in {count_words(seen.count, 'step')} backward() ran on a loss that had not been "
    message += "through scaler.scale(), and the scaler then divided its gradients by the scale"
    if scale:
        message += f" ({number_words(scale)})"
    yield Finding.over(seen, "unscaled-backward", "error", message, scale=scale)


def _clip(run: Run) -> Iterator[Finding]:
    """From the ledger: a clip between the scaled backward pass and ``unscale_``. A limit that was
    multiplied by the scale on purpose is left alone. Clips by hand are told by what they leave:
    the same scaled norm, or the same largest scaled value, step after step."""
    seen = run.facts.get("clip-while-scaled")
    last = run.last
    scale = None if last is None else last.scale
    if seen is not None and not _meant_for_scaled(seen, scale):
        norm, clipped = (None, None) if last is None else (last.grad_norm, last.clipped_norm)
        message = f"in {count_words(seen.count, 'step')} gradients were clipped while they were "
        message += "still multiplied by the scale"
        if clipped is not None and norm is not None and clipped < norm:
            message += f": the last step used a norm of {number_words(clipped)} in place of "
            message += number_words(norm)
        yield Finding.over(
            seen, "clip-before-unscale", "error", message,
            scale=scale, limit=_limit(seen), grad_norm=norm, clipped_norm=clipped,
        )  # fmt: skip
        return
    values = run.gradients.ceiling
    if values.certain and values.span is not None:
        yield Finding.over(
            values.span, "clip-before-unscale", "error",
            f"at {count_words(values.span.count, 'detail step')} the largest values of several "
            f"gradients were exactly {number_words(values.limit)}, times the scale: they were cut "
            "off by hand while they were still multiplied by it",
            scale=values.scale, limit=values.limit,
        )  # fmt: skip
        return
    for trends in run.trends.values():
        norms = trends.clip
        if norms.span is not None:
            yield Finding.over(
                norms.span, "clip-before-unscale", "error",
                f"in {count_words(norms.span.count, 'step')} in a row the norm of the gradients "
                f"was {number_words(norms.limit)}, times the scale, while the loss moved: they "
                "were clipped by hand while they were still multiplied by it",
                scale=norms.scale, limit=norms.limit,
            )  # fmt: skip
            return


def _limit(seen: Seen) -> float | None:
    text = seen.value("limit")
    return None if text is None else float(text)


def _meant_for_scaled(seen: Seen, scale: float | None) -> bool:
    limit = _limit(seen)
    return limit is not None and bool(scale) and for_scaled(limit, scale or 1.0)


def _outside(run: Run) -> Iterator[Finding]:
    """From the ledger: a step that did not come from ``scaler.step()``, on gradients that a scaled
    loss has reached. Where ``unscale_`` has divided them the update is right, and what is missing
    is the check for inf and NaN: an error once some were let through."""
    seen = run.facts.get("step-outside-scaler")
    if seen is None:
        return
    scale = None if run.last is None else run.last.scale
    again, unscaled = seen.told("again"), seen.told("unscaled")
    steps = count_words(seen.count, "step")
    severity = "error"
    if again >= seen.count:
        message = f"in {steps} optimizer.step() was called once more after scaler.step(): the same "
        message += "gradients are applied twice, and those of a skipped step are applied after all"
    elif unscaled >= seen.count:
        message = f"in {steps} optimizer.step() was called directly on gradients that unscale_() "
        message += "had divided: the update has the right size, but nothing keeps inf and NaN out "
        message += "of the weights unless the loop looks for them itself"
        if run.nonfinite_steps <= run.skipped:
            habit = 2 * seen.count > run.steps - seen.first
            severity = "warning" if habit else "info"
    else:
        message = f"in {steps} optimizer.step() was called directly although the loss had been "
        message += "through the scaler: the gradients were still multiplied by the scale"
        message += f" ({number_words(scale)})" if scale else ""
        message += ", and nothing looked for inf and NaN in them"
    yield Finding.over(seen, "step-outside-scaler", severity, message, scale=scale)


def _fp16_parameters(run: Run) -> Iterator[Finding]:
    """float16 gradients where a scaler is about to unscale them, or torch's own refusal."""
    seen = run.facts.get("fp16-gradients")
    if "step-refused" not in run.facts:
        seen = None  # no scaler was asked to unscale them
    error = ending(run)
    said = error is not None and "unscale FP16 gradients" in error
    message = "the trained parameters are float16 themselves, and a GradScaler refuses their "
    message += "gradients: what scaling saves would be lost again when they are unscaled"
    if said:
        message += f". torch says: {error}"
    evidence = {"error": error} if said else {}
    if seen is not None:
        yield Finding.over(
            seen, "fp16-parameters", "error", message, tensor=seen.value("tensor"), **evidence
        )
    elif said:
        yield Finding.at_the_end(run, "fp16-parameters", "error", message, **evidence)


RULES = (
    Rule(
        "unscaled-backward",
        "error",
        "The scaler is on, and backward ran on a loss that was not scaled.",
        "scaler.step() divides every gradient by the scale. Gradients of a loss that was never "
        "multiplied by it become tens of thousands of times too small, and in float16 they may "
        "have been flushed to zero before. Nothing raises; the model just hardly learns, or one "
        "of several losses has no effect. Recognised by the ledger: a backward pass from a tensor "
        "that did not come out of scaler.scale(), followed by scaler.step() on what it reached.",
        "Call scaler.scale(loss).backward() for every loss whose gradients the scaler steps.",
        _unscaled,
        source="torch.amp documentation, Gradient Scaling: step() unscales what scale() has "
        "scaled.",
        before="scaler.scale(loss)\nloss.backward()\nscaler.step(optimizer)",
        after="scaler.scale(loss).backward()\nscaler.step(optimizer)",
    ),
    Rule(
        "clip-before-unscale",
        "error",
        "Gradients were clipped or otherwise changed while scaled.",
        "A limit of 1.0 applied to gradients that are 65536 times too large leaves a step that is "
        "65536 times too small: the scaler divides by the scale afterwards. Recognised by the "
        "ledger: clipping came after a scaled backward pass and before unscale_ (torch's AMP "
        "examples, 'Working with unscaled gradients').",
        "Call scaler.unscale_(optimizer) before clipping; step() then does not unscale again.",
        _clip,
        source="torch's AMP examples, Working with Unscaled Gradients, Gradient clipping.",
        before=(
            "scaler.scale(loss).backward()\n"
            "clip_grad_norm_(model.parameters(), 1.0)\n"
            "scaler.step(optimizer)"
        ),
        after=(
            "scaler.scale(loss).backward()\n"
            "scaler.unscale_(optimizer)\n"
            "clip_grad_norm_(model.parameters(), 1.0)\n"
            "scaler.step(optimizer)"
        ),
    ),
    Rule(
        "step-outside-scaler",
        "error",
        "The loss was scaled, the optimizer stepped without the scaler: scaled gradients were "
        "applied.",
        "optimizer.step() neither divides by the scale nor looks for inf and NaN. SGD then takes "
        "steps that are too large by the scale; Adam hides the factor, looks perfect, and is lost "
        "at the first overflow. A second, direct step after scaler.step() does the same to skipped "
        "steps. After unscale_() the update is right and the check alone is missing: a warning, or "
        "worth knowing where it is done once. Recognised by the ledger: a step that did not come "
        "from scaler.step(), on gradients of a scaled loss.",
        "Call scaler.step(optimizer) in place of optimizer.step(), once a step.",
        _outside,
        source="torch.amp documentation, GradScaler.step; derived: optimizer.step() knows no "
        "scale.",
        before="scaler.scale(loss).backward()\noptimizer.step()\nscaler.update()",
        after="scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    Rule(
        "fp16-parameters",
        "error",
        "Trained parameters or their gradients are float16 under a scaler.",
        "Loss scaling needs gradients in float32 to divide the scale out without loss, and weights "
        "in float32 so that small updates are not rounded away. torch refuses: "
        "'Attempting to unscale FP16 gradients'.",
        "Keep the model in float32 and let autocast lower what can be lowered: no .half().",
        _fp16_parameters,
        source="torch/amp/grad_scaler.py; Micikevicius et al., Mixed Precision Training, 2018, "
        "section 3.1 (float32 master weights).",
        before="model = Net().half()\nscaler = torch.amp.GradScaler()",
        after=(
            "model = Net()\n"
            "scaler = torch.amp.GradScaler()\n"
            'with torch.autocast("cuda", torch.float16):\n'
            "    loss = loss_fn(model(x), y)"
        ),
    ),
)
