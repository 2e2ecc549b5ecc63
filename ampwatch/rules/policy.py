"""Rules about which scaler there is, whether it is the right one, and what goes along with it."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules.finding import Finding, Rule, Sighting
from ampwatch.run import Run
from ampwatch.run.spans import Span
from ampwatch.words import count_words, share_words, were

ZERO_SHARE = 0.5
"""From half of the gradient values on, lack of a scaler is what keeps the model from learning."""
LITTLE_SHARE = 0.05
FEWEST_STEPS = 2
NEW_SCALERS = 2
"""One change of scaler may be a second phase of training; two are a habit."""
MOVED_SKIPS = 2
EVERY_STEP = 4
"""A schedule that moved at four steps in a row is one that moves every step, not every epoch."""


def _no_scaler(run: Run) -> Iterator[Finding]:
    """Steps whose autocast region lowered to float16, or whose parameters are float16 themselves,
    with no scaler or one that is off; how much of the gradients was flushed because of it makes it
    a warning or an error. A loss that the loop multiplies by a power of two itself is scaled too,
    as long as little is flushed."""
    spans: list[Sighting] = [
        span
        for (dtype, mode), span in run.modes.items()
        if dtype == "float16" and mode in (None, "off")
    ]
    off = ("float16", "off") in run.modes
    half = run.facts.get("fp16-gradients")
    if half is not None and "step-refused" not in run.facts and not spans:
        spans = [half]
    steps = sum(span.count for span in spans)
    share, by_hand = run.gradients.share, run.facts.get("scaled-by-hand")
    if steps < FEWEST_STEPS or (by_hand is not None and share < LITTLE_SHARE):
        return
    bad = share >= ZERO_SHARE
    message = f"{count_words(steps, 'step')} went back through float16 "
    message += "with a scaler that is switched off" if off else "without a GradScaler"
    if by_hand is not None:
        message += f", and a scale of {by_hand.value('factor')} by hand is not enough"
    if half is not None:
        message += ", and trained parameters are float16 themselves, so small updates round away"
    if share:
        message += f"; up to {share:.0%} of the gradient values were flushed to 0"
    first, last = min(span.first for span in spans), max(span.last for span in spans)
    yield Finding.over(
        Span(steps, first, last), "fp16-without-scaler", "error" if bad else "warning", message,
        share_zero=share,
    )  # fmt: skip


def _disabled(run: Run) -> Iterator[Finding]:
    """A scaler that was made with ``enabled=True`` and is off once it is made."""
    seen = run.facts.get("scaler-disabled")
    if seen is None:
        return
    device = seen.value("device")
    message = "a GradScaler was asked for"
    message += f" on {device}" if device else ""
    message += ", but there is no such device here, so torch made one that does nothing"
    yield Finding.over(seen, "scaler-disabled", "warning", message, device=device)


def _recreated(run: Run) -> Iterator[Finding]:
    """From the ledger: parameters that one scaler has stepped are stepped by another."""
    seen = run.facts.get("new-scaler")
    if seen is None or seen.count < NEW_SCALERS:
        return
    skips = run.bursts.tally("settling")
    lost = 0 if skips is None else skips.skips
    message = f"a new GradScaler took over {seen.count} times, the first time at step "
    message += f"{seen.first}: what the one before had learned of the scale was thrown away"
    if lost:
        message += f"; looking for it again and again cost {count_words(lost, 'step')} "
        message += f"({share_words(lost, run.steps)}) in all"
    yield Finding.over(
        seen, "scaler-recreated", "warning", message, scalers=seen.count + 1, steps_lost=lost
    )


def _not_restored(run: Run) -> Iterator[Finding]:
    """An optimizer with a history (its count of steps, its momentum, or a state that was loaded
    into it) meets at its first step here a scaler that has none."""
    seen = run.facts.get("resumed-without-scaler-state")
    if seen is None:
        return
    skips = run.bursts.tally("settling")
    lost = 0 if skips is None else skips.skips
    message = "the optimizer's state was restored and the scaler's was not: the scale is back at "
    message += "its initial value and has to find its level again"
    message += f", which cost {count_words(lost, 'step')}" if lost else ""
    yield Finding.over(
        seen, "scaler-state-not-restored", "warning", message,
        optimizer_steps=seen.value("steps"), steps_lost=lost,
    )  # fmt: skip


def _deprecated(run: Run) -> Iterator[Finding]:
    """From the class of a scaler or of an autocast region."""
    seen = run.facts.get("deprecated-api")
    if seen is None:
        return
    names = sorted({each["name"] for _, each in seen.details if "name" in each})
    message = " and ".join(names) or "an old name of torch.amp"
    if len(names) > 1:
        message += " are in use: they work, and warn"
    else:
        message += " is in use: it works, and warns"
    yield Finding.over(seen, "deprecated-amp-api", "info", message, names=names)


def _bf16_with_scaler(run: Run) -> Iterator[Finding]:
    """Steps whose autocast region lowered to bfloat16, under a scaler that is on."""
    span = run.modes.get(("bfloat16", "dynamic"))
    if span is not None:
        message = f"{count_words(span.count, 'step')} {were(span.count)} taken in bfloat16 with "
        message += "the scaler on, which is harmless, and useless"
        yield Finding.over(span, "bf16-with-scaler", "info", message, steps=span.count)


def _schedule(run: Run) -> Iterator[Finding]:
    """The learning rate of the step after a skipped one is another; and the schedule is one that
    moves at every step, so that a new epoch is not taken for it."""
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
    if moved is not None:
        message = f"the learning-rate schedule moved on at {count_words(moved.count, 'step')} that "
        message += "the scaler skipped: it runs ahead of the optimizer"
        yield Finding.over(moved, "schedule-on-skipped-step", "warning", message, steps=moved.count)


RULES = (
    Rule(
        "fp16-without-scaler",
        "warning",
        "Gradients came through float16 autocast with no scaler, or a disabled one (error when a "
        "large share of gradients is zero because of it).",
        "The gradients of activations are float16 in backward; below 2^-24 they become 0. A "
        "GradScaler multiplies the loss so that they do not (Micikevicius et al., Mixed Precision "
        "Training, 2018). It is the same with a model that .half() has made float16. Whether much "
        "is lost depends on the model: it is an error where half of all gradient values were "
        "flushed.",
        "Use autocast and a GradScaler on a float32 model, or bfloat16, which has float32's range "
        "and needs none.",
        _no_scaler,
        source="Micikevicius et al., Mixed Precision Training, 2018, section 3.2 (loss scaling).",
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
        source="torch/amp/grad_scaler.py: GradScaler.__init__ warns and goes on disabled.",
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
        source="torch.amp documentation: one GradScaler for the whole run (Typical Mixed "
        "Precision Training).",
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
        "the optimizer arrives with a history at its first step, or its state was loaded, and the "
        "scaler has none.",
        "Save scaler.state_dict() with the model's and the optimizer's, and load it again.",
        _not_restored,
        source="torch's AMP recipe, Saving/Resuming; torch.amp documentation, "
        "GradScaler.state_dict.",
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
        source="torch.amp documentation: torch.cuda.amp and torch.cpu.amp are deprecated.",
        before="scaler = torch.cuda.amp.GradScaler()",
        after='scaler = torch.amp.GradScaler("cuda")',
    ),
    Rule(
        "bf16-with-scaler",
        "info",
        "bfloat16 with an enabled scaler.",
        "bfloat16 has the range of float32, so gradients neither overflow nor vanish for want of "
        "range, and a loss scale gains nothing.",
        "Leave the scaler out: GradScaler(enabled=False), or none at all.",
        _bf16_with_scaler,
        source="Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019: no loss "
        "scaling is needed.",
        before=(
            "scaler = torch.amp.GradScaler()\n"
            'with torch.autocast("cuda", torch.bfloat16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "scaler.scale(loss).backward()\n"
            "scaler.step(optimizer)\n"
            "scaler.update()"
        ),
        after=(
            'with torch.autocast("cuda", torch.bfloat16):\n'
            "    loss = loss_fn(model(x), y)\n"
            "loss.backward()\n"
            "optimizer.step()"
        ),
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
        source="torch.amp documentation, GradScaler.step: a skipped step does not run "
        "optimizer.step(); the order of scheduler.step() in torch.optim's documentation.",
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
