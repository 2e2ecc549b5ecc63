"""Rules about inf and NaN that no scale can cure: from the data, the forward pass, or left over."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.run import Run
from ampwatch.run.fact_log import Seen
from ampwatch.run.spans import Span
from ampwatch.words import count_words

STALE_STEPS = 2
"""One step that begins with an old inf may be a loop that clears gradients later on."""
ORDER_FACTS = ("backward-after-unscale", "backward-in-step", "update-between", "unscaled-twice")
EXPLAINED = (
    "nonfinite-input",
    "forward-overflow",
    "epsilon-underflow",
    "mask-overflow",
    "diverged",
)
"""Facts that say where inf or NaN in a loss came from."""


def _place(seen: Seen) -> str:
    """Where, as the user's code names it: `div` after `encoder.norm`."""
    operation, module, after = (seen.value(key) for key in ("op", "module", "after"))
    text = f" in the operation {operation}" if operation else ""
    if module:
        return f"{text} of {module}"
    return f"{text}, after {after}" if after else text


def _told(run: Run, name: str, severity: str, fact: str, message: str) -> Finding:
    seen = run.facts[fact]
    return Finding(
        name,
        severity,
        message,
        seen.first,
        seen.last,
        seen.count,
        module=seen.value("module") or seen.value("after"),
        evidence={
            "operation": seen.value("op"),
            "dtype": seen.value("dtype"),
            "largest_input": seen.value("largest"),
            "rows": seen.value("rows"),
        },
    )


def _input(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("nonfinite-input")
    if seen is None:
        return
    kind = seen.value("kind") or "inf or NaN"
    name = seen.value("name")
    steps = ", ".join(str(step) for step, _ in seen.details[:8])
    message = f"a batch already held {kind} before the model saw it"
    message += f" (the variable {name})" if name else ""
    message += (
        f", at step {steps}" if seen.count == 1 else f", in {count_words(seen.count, 'step')}"
    )
    yield _told(run, "nonfinite-input", "error", "nonfinite-input", message)


def _forward(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("forward-overflow")
    if seen is not None:
        largest = seen.value("largest")
        message = f"the forward pass itself went beyond float16's 65504{_place(seen)}"
        message += f", whose largest input was {largest}" if largest else ""
        message += ": the scale has nothing to do with it"
        yield _told(run, "forward-overflow", "error", "forward-overflow", message)
        return
    if any(name in run.facts for name in (*EXPLAINED, "nan-born", "weights-nonfinite")):
        return
    for dtype, _ in run.modes:
        if dtype != "float16":
            continue
        for trends in run.trends.values():
            span = trends.loss.infinite
            if span is not None and trends.loss.first_bad != trends.loss.first_bad:
                continue
            if span is not None:
                yield Finding(
                    "forward-overflow",
                    "error",
                    f"the loss itself was inf in {count_words(span.count, 'step')}: the forward "
                    "pass went beyond float16's 65504, and no scale can help",
                    span.first,
                    span.last,
                    span.count,
                )
                return


def _nan(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("nan-born")
    if seen is not None:
        message = f"inf or NaN arose{_place(seen)}"
        dtype = seen.value("dtype")
        message += f", computed in {dtype}" if dtype else ""
        message += " from finite values within range: mathematics (0/0, log or sqrt), not overflow"
        if seen.value("backward"):
            message += "; it was in the backward pass, the loss was finite"
        yield _told(run, "nan-not-overflow", "error", "nan-born", message)
        return
    if any(name in run.facts for name in EXPLAINED):
        return
    if any(trends.norm.explosion is not None for trends in run.trends.values()):
        return
    for trends in run.trends.values():
        span = trends.loss.nan
        if span is not None and trends.loss.first_bad != trends.loss.first_bad:
            yield _nan_loss(span, "weights-nonfinite" in run.facts)
            return
        span = trends.gradients.nan_taken
        if span is not None and all(dtype == "float32" for dtype, _ in run.modes):
            yield Finding(
                "nan-not-overflow",
                "error",
                f"the gradients were NaN beside a finite loss in {count_words(span.count, 'step')}"
                ", all in float32: mathematics in the backward pass (sqrt or norm at 0, 0/0)",
                span.first,
                span.last,
                span.count,
                trends.gradients.tensor,
            )
            return
    yield from _nan_gradients(run)


def _nan_gradients(run: Run) -> Iterator[Finding]:
    """Skips beside a finite loss that go on where no scaled gradient can overflow any more."""
    if any(name in run.facts for name in ("stale-gradients", *ORDER_FACTS)):
        return
    for trends in run.trends.values():
        span = trends.gradients.nan_skipped
        if span is not None:
            yield Finding(
                "nan-not-overflow",
                "error",
                f"{count_words(span.count, 'step')} had NaN in the gradients beside a finite loss, "
                "at scales so small that nothing overflows: mathematics in the backward pass "
                "(sqrt or norm at 0, 0/0)",
                span.first,
                span.last,
                span.count,
                trends.gradients.tensor,
            )
            return


def _nan_loss(span: Span, weights: bool) -> Finding:
    message = f"the loss itself was NaN in {count_words(span.count, 'step')}"
    message += ": weights were already inf or NaN" if weights else ""
    message += ": no scale can help"
    return Finding(
        "nan-not-overflow", "error", message, span.first, span.last, span.count,
        evidence={"weights_nonfinite": weights},
    )  # fmt: skip


def _epsilon(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("epsilon-underflow")
    if seen is None:
        return
    constant = seen.value("constant")
    message = "a small constant"
    message += f" ({constant})" if constant else ""
    message += f" is 0 in float16 where it should keep a value away from 0{_place(seen)}"
    message += ": the smallest number float16 can hold is 6e-08"
    yield _told(run, "epsilon-underflow", "error", "epsilon-underflow", message)


def _mask(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("mask-overflow")
    error = None if run.end is None else run.end.error
    if seen is not None:
        rows = seen.value("rows")
        message = f"{rows} rows were" if rows and rows != "1" else "a whole row was"
        message += f" masked with -inf{_place(seen)}, which gives NaN: a mask constant such as "
        message += "-1e9 is -inf in float16"
        yield _told(run, "mask-overflow", "error", "mask-overflow", message)
    elif error is not None and "without overflow" in error and "Half" in error:
        yield Finding(
            "mask-overflow",
            "error",
            f"a constant beyond float16's range was put into a float16 tensor. torch says: {error}",
            run.steps,
            run.steps,
            evidence={"error": error},
        )


def _statistics(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("batchnorm-statistics")
    if seen is None:
        return
    module = seen.value("module") or "a normalisation layer"
    message = f"the running statistics of {module} hold inf or NaN since step {seen.first}: "
    message += "training goes on, but evaluation gives NaN and the checkpoint is spoilt"
    yield _told(run, "batchnorm-statistics", "error", "batchnorm-statistics", message)


def _stale(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("stale-gradients")
    if seen is None or seen.count < STALE_STEPS:
        return
    yield Finding(
        "stale-gradients",
        "error",
        f"in {count_words(seen.count, 'step')} the gradients were inf or NaN before backward had "
        "even begun: those of an earlier step are still there",
        seen.first,
        seen.last,
        seen.count,
        seen.value("tensor"),
        evidence={"steps": seen.count},
    )


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
        before='with torch.autocast("cuda", torch.float16):\n    h = layer(x) * 3e4',
        after='with torch.autocast("cuda", torch.bfloat16):\n    h = layer(x) * 3e4',
    ),
    Rule(
        "nan-not-overflow",
        "error",
        "NaN arose without an overflow (0/0, log, sqrt): no scale can cure it.",
        "A 0/0, the log of a negative number, the gradient of sqrt at 0: such NaN comes in float32 "
        "as well. The scaler takes it for an overflow and halves the scale. Recognised by the "
        "first operation with a result that is not finite: its inputs are finite and far from the "
        "end of their format. Without such a trace, by a loss that is NaN itself.",
        "Guard the operation: clamp what goes into log and sqrt, add an epsilon to a divisor.",
        _nan,
        before="loss = torch.log(p).mean()",
        after="loss = torch.log(p.clamp_min(1e-6)).mean()",
    ),
    Rule(
        "epsilon-underflow",
        "error",
        "A small constant is 0 in float16 where it guards a division.",
        "float16 ends at 6e-8 (2^-24); 1e-8 and 1e-12, the usual guards, are 0 there, and a "
        "constant row gives 0/0. bfloat16 and float32 would not show it. Recognised at a division, "
        "log or rsqrt of exactly 0 in float16 behind an added or clamped constant.",
        "Use a guard of at least 1e-4 in float16, or compute this part in float32.",
        _epsilon,
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
        before="scores = scores + mask * -1e9",
        after="scores = scores.masked_fill(mask, -1e4)",
    ),
    Rule(
        "batchnorm-statistics",
        "error",
        "Running statistics became inf or NaN: evaluation is broken although the weights are fine.",
        "Batch norm updates its running mean and variance in the forward pass, before anybody "
        "knows that the step will be skipped. A skipped step protects weights only (pytorch issues "
        "88474 and 115500). Recognised by looking at these buffers after a skipped step.",
        "Load the buffers of an earlier checkpoint or call reset_running_stats(); keep batches "
        "that overflow out of the model, or the layer in front in float32.",
        _statistics,
    ),
    Rule(
        "stale-gradients",
        "error",
        "An inf or NaN of an earlier step is still in .grad: gradients are never cleared.",
        "backward() adds to .grad. Once it holds inf, it holds inf for ever, every later step is "
        "skipped and the scale falls to 0, on clean data. Recognised after a skip: the gradient "
        "is not finite before the next backward pass has begun, in step after step.",
        "Call optimizer.zero_grad() in every step, also in those that are skipped.",
        _stale,
        before="scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
        after=(
            "optimizer.zero_grad()\n"
            "scaler.scale(loss).backward()\n"
            "scaler.step(optimizer)\n"
            "scaler.update()"
        ),
    ),
)
