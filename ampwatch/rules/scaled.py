"""Rules about gradients that carry the scale where they must not, or lack it where they must."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.run import Run
from ampwatch.words import count_words, number_words


def _unscaled(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("unscaled-backward")
    if seen is None:
        return
    scale = None if run.last is None else run.last.scale
    message = f"in {count_words(seen.count, 'step')} backward() ran on a loss that had not been "
    message += "through scaler.scale(), and the scaler then divided its gradients by the scale"
    if scale:
        message += f" ({number_words(scale)})"
    yield Finding(
        "unscaled-backward",
        "error",
        message,
        seen.first,
        seen.last,
        seen.count,
        evidence={"scale": scale},
    )


def _clip(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("clip-while-scaled")
    if seen is None:
        return
    last = run.last
    scale = None if last is None else last.scale
    norm, clipped = (None, None) if last is None else (last.grad_norm, last.clipped_norm)
    message = f"in {count_words(seen.count, 'step')} gradients were clipped while they were still "
    message += "multiplied by the scale"
    if clipped is not None and norm is not None and clipped < norm:
        message += f": the last step used a norm of {number_words(clipped)} in place of "
        message += number_words(norm)
    yield Finding(
        "clip-before-unscale",
        "error",
        message,
        seen.first,
        seen.last,
        seen.count,
        evidence={"scale": scale, "grad_norm": norm, "clipped_norm": clipped},
    )


def _outside(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("step-outside-scaler")
    if seen is None:
        return
    scale = None if run.last is None else run.last.scale
    yield Finding(
        "step-outside-scaler",
        "error",
        f"in {count_words(seen.count, 'step')} optimizer.step() was called directly although the "
        "loss had been through the scaler: nothing was unscaled"
        + (f" (factor {number_words(scale)})" if scale else "")
        + " and nothing was checked for inf and NaN",
        seen.first,
        seen.last,
        seen.count,
        evidence={"scale": scale},
    )


def _fp16_parameters(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("fp16-gradients")
    error = None if run.end is None else run.end.error
    said = error is not None and "unscale FP16 gradients" in error
    if seen is None and not said:
        return
    message = "the trained parameters are float16 themselves, and a GradScaler refuses their "
    message += "gradients: what scaling saves would be lost again when they are unscaled"
    if said:
        message += f". torch says: {error}"
    first = seen.first if seen is not None else None if run.last is None else run.last.step
    yield Finding(
        "fp16-parameters",
        "error",
        message,
        first,
        seen.last if seen is not None else first,
        seen.count if seen is not None else 1,
        seen.value("tensor") if seen is not None else None,
        evidence={"error": error} if said else {},
    )


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
        "steps. Recognised by the ledger: a step that did not come from scaler.step(), on "
        "gradients of a scaled loss.",
        "Call scaler.step(optimizer) in place of optimizer.step(), once a step.",
        _outside,
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
        before="model = Net().half()\nscaler = torch.amp.GradScaler()",
        after=(
            "model = Net()\n"
            "scaler = torch.amp.GradScaler()\n"
            'with torch.autocast("cuda", torch.float16):\n'
            "    loss = loss_fn(model(x), y)"
        ),
    ),
)
