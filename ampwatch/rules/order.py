"""Rules about calls in the wrong place: each rests on a fact, or on torch's own words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ampwatch.rules.finding import Finding, Rule, ending
from ampwatch.run import Run
from ampwatch.run.spans import Span
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
    "Attempted step but _scale is None": (
        "scaler.step() was called before any scaler.scale(loss): backward ran on a loss that was "
        "not scaled"
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


SIGNS = {
    "backward-after-unscale": (
        "a backward pass ran between unscale_() and step(): its scaled gradients were added to "
        "unscaled ones"
    ),
    "unscaled-twice": (
        "gradients were divided by the scale twice: update() came between unscale_() and step()"
    ),
    "backward-in-step": (
        "a backward pass ran inside scaler.step() (a closure): its gradients are neither unscaled "
        "nor checked"
    ),
    "update-between": (
        "update() came between a backward pass and the step that used its gradients"
    ),
    "order-refused": "torch refused a call",
}
"""Facts of the ledger, and what they say."""


def _in_autocast(fact: str, what: str, rule: str, run: Run) -> Iterator[Finding]:
    seen = run.facts.get(fact)
    if seen is not None:
        steps = count_words(seen.count, "step")
        message = f"{what} inside the autocast block in {steps}"
        yield Finding.over(seen, rule, "warning", message, steps=seen.count)


def _backward_in_autocast(run: Run) -> Iterator[Finding]:
    """From torch's own flag, read as the backward pass begins."""
    return _in_autocast("backward-in-autocast", "backward ran", "backward-in-autocast", run)


def _step_in_autocast(run: Run) -> Iterator[Finding]:
    """From torch's own flag, read as the optimizer's step begins."""
    return _in_autocast("step-in-autocast", "the optimizer stepped", "step-in-autocast", run)


def _call_order(run: Run) -> Iterator[Finding]:
    """From the ledger, which notes the scale at each backward pass and compares it with the one
    that unscales; and from torch's own errors, which the finding explains."""
    messages: list[str] = []
    span: Span | None = None
    evidence: dict[str, Any] = {}
    for name, words in SIGNS.items():
        seen = run.facts.get(name)
        if seen is None:
            continue
        told = seen.value("error")
        text = f"{words}: {_order_words(told) or told}" if told is not None else words
        if name == "update-between":
            factor, text = _factor([each.get("factor") for _, each in seen.details], words)
            evidence["factor"] = factor
        messages.append(f"{text} ({count_words(seen.count, 'step')})")
        here = Span(seen.count, seen.first, seen.last)
        span = here if span is None else span.joined(here)
    error = ending(run)
    explained = None if error is None else _order_words(error)
    if explained is not None:
        messages.append(f"{explained}. torch says: {error}")
        here = Span(1, run.steps, run.steps)
        span = here if span is None else span.joined(here)
        evidence["error"] = error
    if span is not None:
        yield Finding.over(span, "scaler-call-order", "error", "; ".join(messages), **evidence)


def _factor(factors: list[str | None], words: str) -> tuple[float | None, str]:
    """By how much gradients were wrong: the first factor that is not 1."""
    known = [float(factor) for factor in factors if factor is not None]
    wrong = next((factor for factor in known if factor != 1), None)
    if wrong is None:
        return 1.0, f"{words}; the scale happened to stay the same, so no harm was done yet"
    return wrong, f"{words}: the scale had changed, and they were {wrong:g} times too large"


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
        source="torch.amp documentation, Autocasting: 'Backward passes under autocast are not "
        "recommended'.",
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
        source="torch.amp documentation, Autocasting: autocast should wrap only the forward pass "
        "and the loss computation.",
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
        "Call scaler.update() exactly once a step, after the last scaler.step(); unscale_ once, "
        "after the last backward pass of the step.",
        _call_order,
        source="torch's AMP examples, Working with Multiple Models, Losses, and Optimizers; "
        "torch/amp/grad_scaler.py for the messages.",
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
