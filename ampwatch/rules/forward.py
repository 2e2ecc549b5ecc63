"""Rules about inf that is there before backward begins: from the data or from the forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ampwatch.rules.finding import Finding, Rule, ending
from ampwatch.rules.places import place_words
from ampwatch.run import Run
from ampwatch.run.fact_log import Seen
from ampwatch.run.skip_causes import LOSSES
from ampwatch.words import count_words, ordinal

EXPLAINED = (
    "nonfinite-input",
    "forward-overflow",
    "epsilon-underflow",
    "mask-overflow",
    "diverged",
    "nonfinite-factor",
)
"""Facts that say where inf or NaN in a loss came from."""
MOST_STEPS = 8


def _told(run: Run, rule: str, seen: Seen, message: str) -> Finding:
    """A finding from a fact about an operation, with the rhythm of the steps, if they have one."""
    rhythm = run.bursts.recent.rhythm(LOSSES)
    evidence: dict[str, Any] = {
        "variable": seen.value("name"),
        "operation": seen.value("op"),
        "dtype": seen.value("dtype"),
        "largest_input": seen.value("largest"),
        "largest_finite_output": seen.value("output"),
        "rows": seen.value("rows"),
    }
    if rhythm is not None:
        message += f", at every {ordinal(rhythm.period)} step"
        evidence["period"] = rhythm.period
    module = seen.value("module") or seen.value("after")
    return Finding.over(seen, rule, "error", message, module=module, **evidence)


def _input(run: Run) -> Iterator[Finding]:
    """The first value that is inf or NaN in the graph of a loss that is not finite was handed in,
    and not computed: a tensor that the loop's own variables hold, where it can be found."""
    seen = run.facts.get("nonfinite-input")
    if seen is None:
        return
    name = seen.value("name")
    steps = ", ".join(str(step) for step, _ in seen.details[:MOST_STEPS])
    message = f"a batch already held {seen.value('kind') or 'inf or NaN'} before the model saw it"
    message += f" (the variable {name})" if name else ""
    message += f", at step {steps}" if seen.count == 1 else f", in {_steps_words(run, seen)}"
    yield _told(run, "nonfinite-input", seen, message)


def _steps_words(run: Run, seen: Seen) -> str:
    """In how many steps; not every loss of a long row is looked into."""
    trends = [each.loss for each in run.trends.values()]
    bad = sum(span.count for each in trends for span in (each.nan, each.infinite) if span)
    return ("at least " if bad > seen.count else "") + count_words(seen.count, "step")


def _forward(run: Run) -> Iterator[Finding]:
    """The first operation in the graph of a loss that is not finite whose result is inf although
    its inputs are finite, in float16. Without such a trace, a loss that is inf itself."""
    seen = run.facts.get("forward-overflow")
    if seen is not None:
        largest = seen.value("largest")
        message = f"the forward pass itself went beyond float16's 65504{place_words(seen)}"
        message += f", whose largest input was {largest}" if largest else ""
        message += ": the scale has nothing to do with it"
        yield _told(run, "forward-overflow", seen, message)
        return
    if any(name in run.facts for name in (*EXPLAINED, "nan-born", "weights-nonfinite")):
        return
    if not any(dtype == "float16" for dtype, _ in run.modes):
        return
    for trends in run.trends.values():
        span, first = trends.loss.infinite, trends.loss.first_bad
        if span is not None and first == first:
            message = (
                f"the loss itself was inf in {count_words(span.count, 'step')}. Where it arose "
            )
            message += "was not seen; in float16 it is most often a value beyond 65504 in the "
            message += "forward pass. No scale can help"
            yield Finding.over(span, "forward-overflow", "error", message)
            return


def _epsilon(run: Run) -> Iterator[Finding]:
    """A division, log or power of exactly 0 in float16, behind an addition of a constant or a
    clamp that should have kept it away from 0; or a root of it, whose value is finite and whose
    derivative is not."""
    seen = run.facts.get("epsilon-underflow")
    origins = run.facts.get("backward-origin")
    backward = None if origins is None else origins.only("epsilon")
    for each, constant in ((seen, "constant"), (backward, "epsilon")):
        if each is None:
            continue
        value = each.value(constant)
        message = "a small constant"
        message += f" ({value})" if value not in (None, "yes") else ""
        message += f" is 0 in float16 where it should keep a value away from 0{place_words(each)}"
        message += "; its derivative is inf at 0, beside a finite loss" if each is backward else ""
        message += ": the smallest number float16 can hold is 6e-08"
        yield _told(run, "epsilon-underflow", each, message)
        return


def _mask(run: Run) -> Iterator[Finding]:
    """A softmax with whole rows of NaN over scores that were finite before a mask was put on them;
    or torch's own refusal to put such a constant into a float16 tensor."""
    seen = run.facts.get("mask-overflow")
    error = ending(run)
    if seen is not None:
        rows = seen.value("rows")
        message = f"{rows} whole rows were" if rows and rows != "1" else "a whole row was"
        message += (
            f" masked with -inf{place_words(seen)}, which gives NaN: a mask constant such as "
        )
        message += "-1e9 is -inf in float16"
        yield _told(run, "mask-overflow", seen, message)
    elif error is not None and "without overflow" in error and "Half" in error:
        message = "a constant beyond float16's range was put into a float16 tensor. torch says: "
        yield Finding.at_the_end(run, "mask-overflow", "error", message + error, error=error)


RULES = (
    Rule(
        "nonfinite-input",
        "error",
        "A batch handed to the model already held inf or NaN.",
        "NaN in one value of one sample makes the loss NaN and every gradient with it. The scaler "
        "skips the step, so the weights are safe, but it halves the scale for nothing. Recognised "
        "at a loss that is not finite: the first value that is inf or NaN in the graph of the loss "
        "was not computed, it was handed in.",
        "Check the data at these steps: torch.isfinite(x).all(). Drop or repair such samples.",
        _input,
        source="Reports of losses that are NaN because of the data: prs-eth/Marigold issue 111, "
        "avalonstrel/GatedConvolution_pytorch issue 27.",
        before="loss = loss_fn(model(x), y)",
        after="if not torch.isfinite(x).all():\n    continue\nloss = loss_fn(model(x), y)",
    ),
    Rule(
        "forward-overflow",
        "error",
        "A module's output was already inf in the forward pass.",
        "Activations beyond 65504 are inf in float16. The scale multiplies the loss, after the "
        "forward pass, so no scale helps and the scaler halves it towards 0. Recognised at a loss "
        "that is not finite, in the graph of the loss: the first operation whose result is not "
        "finite although its inputs are.",
        "Compute that layer in float32 (autocast with enabled=False around it) or train in "
        "bfloat16; smaller weights, a normalisation or a smaller factor help too.",
        _forward,
        source="huggingface/transformers issues 5651, 11076 and 12225 (activations beyond 65504 "
        "in fp16); IEEE 754 binary16.",
        before='with torch.autocast("cuda", torch.float16):\n    h = layer(x) * 3e4',
        after='with torch.autocast("cuda", torch.bfloat16):\n    h = layer(x) * 3e4',
    ),
    Rule(
        "epsilon-underflow",
        "error",
        "A small constant is 0 in float16 where it guards a division.",
        "float16 ends at 6e-8 (2^-24); 1e-8 and 1e-12, the usual guards, are 0 there, and a "
        "constant row gives 0/0. bfloat16 and float32 would not show it. Recognised at a division, "
        "log or rsqrt of exactly 0 in float16 behind an added or clamped constant, or in the "
        "backward pass of a root of it.",
        "Use a guard of at least 1e-4 in float16, or compute this part in float32.",
        _epsilon,
        source="pytorch issues 32137 and 61954; derived: 2^-25 and below round to 0 in binary16 "
        "(IEEE 754).",
        before="x / torch.sqrt(variance + 1e-8)",
        after="x / torch.sqrt(variance.float() + 1e-8)",
    ),
    Rule(
        "mask-overflow",
        "error",
        "A mask constant beyond float16's range became -inf and whole rows are masked.",
        "A mask of -1e9 is -inf in float16, and so is its smallest number plus a negative "
        "score. A softmax over a row that is -inf everywhere is 0/0. Recognised at a softmax "
        "with whole rows of NaN whose scores were finite before a mask was put on them.",
        "Use masked_fill with torch.finfo(scores.dtype).min on scores that stay above -16, a "
        "boolean mask for scaled_dot_product_attention, or softmax in float32; and do not mask "
        "whole rows.",
        _mask,
        source="fairseq issue 3575, NVIDIA/apex issue 1105, huggingface/transformers PR 17306.",
        before="scores = scores + mask * -1e9",
        after="scores = scores.masked_fill(mask, -1e4)",
    ),
)
