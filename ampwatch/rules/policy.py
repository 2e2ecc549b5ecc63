"""Rules about which scaler there is, whether it is the right one, and what goes along with it."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule
from ampwatch.run import Run
from ampwatch.run.spans import Span
from ampwatch.words import count_words

ZERO_SHARE = 0.5
"""From half of the gradient values on, lack of a scaler is what keeps the model from learning."""
FEWEST_STEPS = 2
NEW_SCALERS = 2
"""One change of scaler may be a second phase of training; two are a habit."""
MOVED_SKIPS = 2
EVERY_STEP = 4
"""A schedule that moved at four steps in a row is one that moves every step, not every epoch."""


def _no_scaler(run: Run) -> Iterator[Finding]:
    spans = [
        (mode, span)
        for (dtype, mode), span in run.modes.items()
        if dtype == "float16" and mode in (None, "off")
    ]
    steps = sum(span.count for _, span in spans)
    if steps < FEWEST_STEPS:
        return
    share = run.gradients.share
    off = any(mode == "off" for mode, _ in spans)
    bad = share >= ZERO_SHARE
    message = f"{count_words(steps, 'step')} went back through float16 "
    message += "with a scaler that is switched off" if off else "without a GradScaler"
    if bad:
        message += f"; {share:.0%} of the gradient values were flushed to 0"
    yield Finding(
        "fp16-without-scaler",
        "error" if bad else "warning",
        message,
        min(span.first for _, span in spans),
        max(span.last for _, span in spans),
        steps,
        evidence={"share_zero": share},
    )


def _disabled(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("scaler-disabled")
    if seen is None:
        return
    device = seen.value("device")
    yield Finding(
        "scaler-disabled",
        "warning",
        "a GradScaler was asked for"
        + (f" on {device}" if device else "")
        + ", but there is no such device here, so torch made one that does nothing",
        seen.first,
        seen.last,
        seen.count,
        evidence={"device": device},
    )


def _recreated(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("new-scaler")
    if seen is None or seen.count < NEW_SCALERS:
        return
    skips = run.bursts.tally("settling")
    paid = "" if skips is None else f"; settling cost {count_words(skips.skips, 'step')} in all"
    yield Finding(
        "scaler-recreated",
        "warning",
        f"a new GradScaler took over {seen.count} times, the first time at step {seen.first}: "
        f"what the one before had learned of the scale was thrown away{paid}",
        seen.first,
        seen.last,
        seen.count,
        evidence={"scalers": seen.count + 1},
    )


def _not_restored(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("resumed-without-scaler-state")
    if seen is None:
        return
    yield Finding(
        "scaler-state-not-restored",
        "warning",
        "the optimizer's state was restored and the scaler's was not: the scale is back at its "
        "initial value and has to find its level again",
        seen.first,
        seen.last,
        seen.count,
        evidence={"optimizer_steps": seen.value("steps")},
    )


def _deprecated(run: Run) -> Iterator[Finding]:
    seen = run.facts.get("deprecated-api")
    if seen is None:
        return
    names = sorted({each["name"] for _, each in seen.details if "name" in each})
    yield Finding(
        "deprecated-amp-api",
        "info",
        f"{' and '.join(names) or 'an old name of torch.amp'} in use: it works, and warns",
        seen.first,
        seen.last,
        seen.count,
        evidence={"names": names},
    )


def _schedule(run: Run) -> Iterator[Finding]:
    moved: Span | None = None
    for trends in run.trends.values():
        rate = trends.rate
        span = rate.moved_after_skip
        if span is None or rate.still_after_skip > span.count:
            continue
        often = span.count >= MOVED_SKIPS and rate.most_in_a_row >= MOVED_SKIPS
        if often or rate.most_in_a_row >= EVERY_STEP:
            moved = span
            break
    if moved is None:
        return
    yield Finding(
        "schedule-on-skipped-step",
        "warning",
        f"the learning-rate schedule moved on at {count_words(moved.count, 'step')} that the "
        "scaler skipped: it runs ahead of the optimizer",
        moved.first,
        moved.last,
        moved.count,
        evidence={"steps": moved.count},
    )


RULES = (
    Rule(
        "fp16-without-scaler",
        "warning",
        "Gradients came through float16 autocast with no scaler, or a disabled one (error when a "
        "large share of gradients is zero because of it).",
        "The gradients of activations are float16 in backward; below 2^-24 they become 0. A "
        "GradScaler multiplies the loss so that they do not (Micikevicius et al., Mixed Precision "
        "Training, 2018). Whether much is lost depends on the model: it is an error where half of "
        "all gradient values were flushed.",
        "Use a GradScaler, or bfloat16, which has float32's range and needs none.",
        _no_scaler,
        before=(
            'with torch.autocast("cuda", torch.float16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "loss.backward()\n"
            "optimizer.step()"
        ),
        after=(
            'with torch.autocast("cuda", torch.float16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "scaler.scale(loss).backward()\n"
            "scaler.step(optimizer)\n"
            "scaler.update()"
        ),
    ),
    Rule(
        "scaler-disabled",
        "warning",
        "A scaler was asked for and is a silent no-op (no such device).",
        "GradScaler for a device that is not there switches itself off and only warns: scale() "
        "gives the loss back as it is, step() is the optimizer's own.",
        "Name the device that is used: torch.amp.GradScaler(device.type).",
        _disabled,
        before='scaler = torch.amp.GradScaler("cuda")',
        after="scaler = torch.amp.GradScaler(device.type)",
    ),
    Rule(
        "scaler-recreated",
        "warning",
        "A new scaler in mid-run, again and again: its settling skips are paid each time.",
        "A GradScaler learns its scale by skipping steps. Made anew in every epoch it starts at "
        "65536 each time and skips the same steps again. Recognised by the scaler object that "
        "steps the same parameters: it was another one before, at least twice.",
        "Make the scaler once, before the first epoch.",
        _recreated,
        before=(
            "for epoch in range(epochs):\n"
            "    scaler = torch.amp.GradScaler()\n"
            "    for x, y in loader:\n"
            "        ..."
        ),
        after=(
            "scaler = torch.amp.GradScaler()\n"
            "for epoch in range(epochs):\n"
            "    for x, y in loader:\n"
            "        ..."
        ),
    ),
    Rule(
        "scaler-state-not-restored",
        "warning",
        "Training resumed with the scale back at its initial value.",
        "A checkpoint without the scaler's state makes the resumed run look for its scale again: "
        "a burst of skips, and results that differ from the uninterrupted run. Recognised where "
        "the optimizer arrives with a history at its first step and the scaler has none.",
        "Save scaler.state_dict() with the model's and the optimizer's, and load it again.",
        _not_restored,
        before="model.load_state_dict(saved['model'])\noptimizer.load_state_dict(saved['opt'])",
        after=(
            "model.load_state_dict(saved['model'])\n"
            "optimizer.load_state_dict(saved['opt'])\n"
            "scaler.load_state_dict(saved['scaler'])"
        ),
    ),
    Rule(
        "deprecated-amp-api",
        "info",
        "torch.cuda.amp / torch.cpu.amp names in use.",
        "torch.amp has taken their place; the old ones are the same classes with a warning.",
        'Use torch.amp.autocast("cuda", ...) and torch.amp.GradScaler("cuda").',
        _deprecated,
        before="scaler = torch.cuda.amp.GradScaler()",
        after='scaler = torch.amp.GradScaler("cuda")',
    ),
    Rule(
        "schedule-on-skipped-step",
        "warning",
        "The learning-rate schedule moved on although the optimizer was skipped.",
        "scheduler.step() counts steps that were never taken: warm-up ends early, decay begins "
        "early. Recognised where the learning rate of the step after a skipped one differs, and "
        "the schedule is one that moves every step.",
        "Step the schedule only when the optimizer stepped: compare the scale before and after "
        "update(), a smaller one means a skip.",
        _schedule,
        before="scaler.step(optimizer)\nscaler.update()\nscheduler.step()",
        after=(
            "scale = scaler.get_scale()\n"
            "scaler.step(optimizer)\n"
            "scaler.update()\n"
            "if scaler.get_scale() >= scale:\n"
            "    scheduler.step()"
        ),
    ),
)
