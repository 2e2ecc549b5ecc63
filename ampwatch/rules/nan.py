"""The rule about NaN that arises by mathematics, and not because a format ends."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.collapse import collapsed, worst_bursts
from ampwatch.rules.finding import Finding, Rule
from ampwatch.rules.forward import EXPLAINED
from ampwatch.rules.mathematics import at_tiny_scales, nan_causes
from ampwatch.rules.places import place_words
from ampwatch.rules.skips import lone_losses
from ampwatch.run import Run
from ampwatch.run.fact_log import Seen
from ampwatch.run.skip_causes import LOSSES
from ampwatch.run.spans import Span
from ampwatch.words import count_words, ordinal


def _nan(run: Run) -> Iterator[Finding]:
    """The first operation with a result that is not finite: its inputs are finite, and far from the
    end of their format. Without such a trace: a loss that is NaN itself; NaN in gradients where all
    is float32; or NaN in gradients at a scale at which nothing overflows."""
    seen = run.facts.get("nan-born")
    if seen is not None:
        rhythm = run.bursts.recent.rhythm(LOSSES)
        dtype = seen.value("dtype")
        message = f"inf or NaN arose{place_words(seen)}"
        message += f", computed in {dtype}" if dtype else ""
        if seen.value("masked"):
            message += " from the -inf that a mask has put there: mathematics, not overflow"
        else:
            message += " from finite values within range: mathematics (0/0, log or sqrt), not "
            message += "overflow"
        message += "; it was in the backward pass, the loss was finite" * bool(
            seen.value("backward")
        )
        message += f", at every {ordinal(rhythm.period)} step" if rhythm is not None else ""
        yield Finding.over(
            seen, "nan-not-overflow", "error", message,
            module=seen.value("module") or seen.value("after"),
            operation=seen.value("op"), dtype=dtype, largest_input=seen.value("largest"),
            period=None if rhythm is None else rhythm.period,
        )  # fmt: skip
        return
    origins = run.facts.get("backward-origin")
    origin = None if origins is None else origins.only(kind="nan", without=("epsilon",))
    if origin is not None:
        yield _in_backward(run, origin)
        return
    if origins is not None and origins.told("epsilon"):
        return
    if any(name in run.facts for name in EXPLAINED if name != "nonfinite-factor"):
        return
    if any(trends.norm.explosion is not None for trends in run.trends.values()):
        return
    found = _factor(run) or _nan_loss(run) or _nan_in_float32(run) or _nan_gradients(run)
    if found is not None:
        yield found


def _in_backward(run: Run, origin: Seen) -> Finding:
    """The search of backward looks into some of the steps; the skips beside them are told too."""
    message = f"NaN arose in the backward pass{place_words(origin)}, beside a finite loss and "
    message += "without an overflow before it: mathematics (sqrt or norm at 0, 0/0)"
    causes = nan_causes(run)
    rhythm = run.bursts.recent.rhythm(causes)
    skips: Span | None = None
    for span in (run.bursts.causes[cause] for cause in causes if cause in run.bursts.causes):
        skips = span if skips is None else skips.joined(span)
    if skips is not None and skips.count > origin.count:
        message += f"; {count_words(skips.count, 'step')} were skipped for NaN in the gradients"
        message += f", at every {ordinal(rhythm.period)} step" if rhythm is not None else ""
    return Finding.over(
        origin if skips is None or skips.count < origin.count else skips,
        "nan-not-overflow", "error", message, module=origin.value("module"),
        operation=origin.value("operation"), largest=origin.value("largest"),
        period=None if rhythm is None else rhythm.period,
    )  # fmt: skip


def _factor(run: Run) -> Finding | None:
    """The loss is finite until it is multiplied by inf or NaN. Told where a collapse does not tell
    it already, and where it is more than a lone overflow."""
    seen = run.facts.get("nonfinite-factor")
    if seen is None or lone_losses(run) or any(map(collapsed, worst_bursts(run))):
        return None
    rhythm = run.bursts.recent.rhythm(LOSSES)
    message = f"the loss was multiplied by inf or NaN in {count_words(seen.count, 'step')}"
    message += f", at every {ordinal(rhythm.period)} step" if rhythm is not None else ""
    period = None if rhythm is None else rhythm.period
    return Finding.over(
        seen, "nan-not-overflow", "error", f"{message}: no scale can help",
        operation=seen.value("op"), period=period,
    )  # fmt: skip


def _nan_loss(run: Run) -> Finding | None:
    weights = run.facts.get("weights-nonfinite")
    for trends in run.trends.values():
        span, first = trends.loss.nan, trends.loss.first_bad
        if span is not None and first != first:
            message = f"the loss itself was NaN in {count_words(span.count, 'step')}"
            if weights is not None and weights.first <= span.first:
                message += ": weights were already inf or NaN"
            else:
                message += ", and where it arose was not seen"
                message += "; since then weights are inf or NaN too" if weights else ""
            message += ": no scale can help"
            return Finding.over(
                span, "nan-not-overflow", "error", message, weights_nonfinite=weights is not None
            )
    return None


def _nan_in_float32(run: Run) -> Finding | None:
    if not all(dtype == "float32" for dtype, _ in run.modes):
        return None
    for trends in run.trends.values():
        span = trends.gradients.nan_taken
        if span is not None:
            message = "the gradients were NaN beside a finite loss in "
            message += f"{count_words(span.count, 'step')}, all in float32: mathematics in the "
            message += "backward pass (sqrt or norm at 0, 0/0)"
            tensor = trends.gradients.tensor
            return Finding.over(span, "nan-not-overflow", "error", message, tensor=tensor)
    return None


def _nan_gradients(run: Run) -> Finding | None:
    """Skips beside a finite loss that go on where no scaled gradient can overflow any more."""
    if not at_tiny_scales(run):
        return None
    for trends in run.trends.values():
        span = trends.gradients.nan_skipped
        if span is not None:
            message = f"{count_words(span.count, 'step')} had NaN in the gradients beside a finite "
            message += "loss, at scales so small that nothing overflows: mathematics in the "
            message += "backward pass (sqrt or norm at 0, 0/0)"
            tensor = trends.gradients.tensor
            return Finding.over(span, "nan-not-overflow", "error", message, tensor=tensor)
    return None


RULES = (
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
        source="torch's documentation of torch.autograd.detect_anomaly; derived: IEEE 754 gives "
        "NaN for 0/0, inf - inf, sqrt and log of negative numbers in every format.",
        before="loss = torch.log(p).mean()",
        after="loss = torch.log(p.clamp_min(1e-6)).mean()",
    ),
)
