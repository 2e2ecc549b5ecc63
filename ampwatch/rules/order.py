"""Rules about calls in the wrong place: each rests on a fact, or on torch's own words."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.run import Run
from ampwatch.run.fact_log import Seen
from ampwatch.words import count_words

ORDER_ERRORS = {
    "step() has already been called since the last update()": (
        "scaler.step() was called a second time without scaler.update() between: "
        "update() is missing at the end of the step before"
    ),
    "unscale_() has already been called on this optimizer since the last update()": (
        "scaler.unscale_() was called a second time without scaler.update() between: call it once "
        "a step, and update() on every way out of the step, also where the step is left out"
    ),
    "unscale_() is being called after step()": (
        "scaler.unscale_() was called after scaler.step(): step() unscales by itself, so "
        "unscale_() and clipping belong before it"
    ),
    "No inf checks were recorded prior to update": (
        "scaler.update() was called although no step or unscale_ came before it: it is called "
        "twice, or its step() is missing"
    ),
    "Attempted update but _scale is None": (
        "scaler.update() was called before any scaler.scale(loss): nothing was scaled yet"
    ),
    "Attempted unscale_ but _scale is None": (
        "scaler.unscale_() was called before any scaler.scale(loss): after a restart as well, the "
        "scale exists only from the first scale() on"
    ),
    "Closure use is not currently supported if GradScaler is enabled": (
        "scaler.step() was given a closure: gradients made inside it would be neither unscaled "
        "nor checked"
    ),
}
"""What torch.amp.GradScaler says (torch/amp/grad_scaler.py), and which call is missing."""


def _fact(run: Run, name: str) -> Seen | None:
    return run.facts.get(name)


def _in_autocast(fact: str, what: str, rule: str, run: Run) -> Iterator[Finding]:
    seen = _fact(run, fact)
    if seen is None:
        return
    yield Finding(
        rule,
        "warning",
        f"{what} inside the autocast block in {count_words(seen.count, 'step')}",
        seen.first,
        seen.last,
        seen.count,
        evidence={"steps": seen.count},
    )


def _backward_in_autocast(run: Run) -> Iterator[Finding]:
    return _in_autocast("backward-in-autocast", "backward ran", "backward-in-autocast", run)


def _step_in_autocast(run: Run) -> Iterator[Finding]:
    return _in_autocast("step-in-autocast", "the optimizer stepped", "step-in-autocast", run)


def _call_order(run: Run) -> Iterator[Finding]:
    messages: list[str] = []
    steps: list[int] = []
    count = 0
    evidence: dict[str, object] = {}
    for name, words in (
        ("backward-after-unscale", "a backward pass ran between unscale_() and step(): its scaled "
         "gradients were added to unscaled ones and are not unscaled any more"),
        ("backward-in-step", "a backward pass ran inside scaler.step() (a closure): its gradients "
         "are neither unscaled nor checked"),
        ("unscaled-twice", "gradients were unscaled a second time: update() came between unscale_() "
         "and step()"),
        ("update-between", "update() came between a backward pass and the step that used its "
         "gradients, which may change the scale in between"),
        ("order-refused", "torch refused a call"),
    ):  # fmt: skip
        seen = _fact(run, name)
        if seen is None:
            continue
        text = words
        factor, error = seen.value("factor"), seen.value("error")
        if factor is not None:
            evidence["factor"] = factor
            text += f": they were {factor} times too large"
        if error is not None:
            text += f": {_order_words(error) or error}"
        messages.append(f"{text} ({count_words(seen.count, 'step')})")
        steps += [seen.first, seen.last]
        count += seen.count
    error = None if run.end is None else run.end.error
    words_of_torch = None if error is None else _order_words(error)
    if error is not None and words_of_torch is not None:
        messages.append(f"{words_of_torch}. torch says: {error}")
        steps.append(run.steps)
        count += 1
        evidence["error"] = error
    if messages:
        yield Finding(
            "scaler-call-order",
            "error",
            "; ".join(messages),
            min(steps),
            max(steps),
            count,
            evidence=evidence,
        )


def _order_words(error: str) -> str | None:
    return next((words for text, words in ORDER_ERRORS.items() if text in error), None)


RULES = (
    Rule(
        "backward-in-autocast",
        "warning",
        "Backward ran inside autocast.",
        "Backward runs each operation in the dtype its forward used, by itself. Inside the block "
        "autocast may lower operations of backward a second time, differently (torch's autocast "
        "documentation: 'Backward passes under autocast are not recommended').",
        "Let the autocast block end after the loss; call backward outside it.",
        _backward_in_autocast,
        before=(
            'with torch.autocast("cuda", torch.float16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "    scaler.scale(loss).backward()"
        ),
        after=(
            'with torch.autocast("cuda", torch.float16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "scaler.scale(loss).backward()"
        ),
    ),
    Rule(
        "step-in-autocast",
        "warning",
        "The optimizer stepped inside autocast.",
        "Autocast is for the forward pass and the loss. Inside the block an optimizer's own "
        "operations may run in half precision, and small updates are lost.",
        "Move scaler.step(optimizer), or optimizer.step(), out of the autocast block.",
        _step_in_autocast,
        before=(
            'with torch.autocast("cuda", torch.float16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "    scaler.scale(loss).backward()\n"
            "    scaler.step(optimizer)"
        ),
        after=(
            'with torch.autocast("cuda", torch.float16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "scaler.scale(loss).backward()\n"
            "scaler.step(optimizer)"
        ),
    ),
    Rule(
        "scaler-call-order",
        "error",
        "Update missing or doubled, step or unscale_ twice, two optimizers with an update between "
        "them.",
        "Each step is scale, backward, unscale_ (if gradients are touched), step, and one update "
        "at its end, after the steps of all optimizers. Gradients that were made with one scale "
        "and unscaled with another are wrong by the ratio of the two; gradients added after "
        "unscale_ are wrong by the scale. Recognised by a ledger of these calls, each with the "
        "scale in force, and by torch's own errors.",
        "Call scaler.update() exactly once a step, after the last scaler.step().",
        _call_order,
        before=(
            "scaler.scale(loss_a).backward()\n"
            "scaler.scale(loss_b).backward()\n"
            "scaler.step(optimizer_a)\n"
            "scaler.update()\n"
            "scaler.step(optimizer_b)\n"
            "scaler.update()"
        ),
        after=(
            "scaler.scale(loss_a).backward()\n"
            "scaler.scale(loss_b).backward()\n"
            "scaler.step(optimizer_a)\n"
            "scaler.step(optimizer_b)\n"
            "scaler.update()"
        ),
    ),
)
