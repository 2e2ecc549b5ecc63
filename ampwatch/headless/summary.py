"""A run in a few lines of text, for the end of a run without a screen."""

from __future__ import annotations

from collections.abc import Iterator

from ampwatch.rules import RULE_BY_ID, Finding
from ampwatch.rules.telling import TROUBLING, verdict, when_words, where_words
from ampwatch.run import Run
from ampwatch.run.events import Event
from ampwatch.session import Session
from ampwatch.words import (
    count_words,
    number_words,
    power_words,
    rate_words,
    seconds_words,
    share_words,
)

MOST_ORIGINS = 3
MOST_EVENTS = 8

NO_STEPS = (
    "no optimizer step was taken, so there is nothing to tell: ampwatch watches the steps of "
    "torch.optim optimizers, and this script has not reached one"
)


def summary_text(session: Session) -> str:
    """The run, its findings and its events of note."""
    run = session.run
    lines = [f"ampwatch: {ending(run)}"]
    if run.last is None:
        lines.append(f"  {NO_STEPS}")
    else:
        lines.extend(f"  {line}" for line in figures(run))
        lines.append(f"  {verdict(run, session.findings)}")
    if session.findings:
        lines.append("findings")
        for finding in session.findings:
            lines.extend(f"  {line}" for line in _finding_lines(finding))
    noted = [event for event in run.events if _of_note(event)]
    if noted:
        left = len(noted) - MOST_EVENTS
        lines.append("events of note" + (f" (the last of {len(noted):,})" if left > 0 else ""))
        lines.extend(f"  {line}" for line in map(_event_line, noted[-MOST_EVENTS:]))
    return "\n".join(lines)


def ending(run: Run) -> str:
    """How it ended, after how many steps and how long."""
    status = "still running" if run.end is None else run.end.status
    text = f"{status} after {count_words(run.steps, 'step')}"
    if run.first is not None and run.last is not None and run.last.time > run.first.time:
        text += f" in {seconds_words(run.last.time - run.first.time)}"
    rate = run.rate()
    if rate is not None:
        text += f" ({rate_words(rate)})"
    if run.end is not None and run.end.error:
        text += f": {run.end.error}"
    return text


def figures(run: Run) -> Iterator[str]:
    """What else is to be said of the run as a whole, line by line."""
    summary = run.summary()
    scaler = summary["scaler"]
    policy = "no scaler" if scaler is None else f"scaler {scaler}"
    scale = summary["final_scale"]
    if scale is not None and scaler != "off":
        policy += f", final scale {power_words(scale)}"
        if scale == int(scale or 0.5) and scale < 1e6:
            policy += f" ({int(scale)})"
    yield f"{summary['dtype'] or 'dtype unknown'}, {policy}"
    if scaler is not None or run.skipped:
        yield (
            f"skipped {run.skipped:,} of {count_words(run.steps, 'step')} "
            f"({share_words(run.skipped, run.steps)}){_by_optimizer(run)}"
        )
    taken = run.nonfinite_steps - run.skipped
    if taken > 0:
        yield f"{count_words(taken, 'step')} with inf or NaN taken all the same"
    if run.origins:
        names = ", ".join(
            f"{name} ({count:,})" for name, count in run.origins.most_common(MOST_ORIGINS)
        )
        more = len(run.origins) - MOST_ORIGINS
        yield f"inf or NaN came from {names}{f' and {more:,} others' if more > 0 else ''}"
    if summary["final_loss"] is not None:
        yield f"final loss {number_words(summary['final_loss'])}"
    overhead = summary["overhead"]
    if overhead is not None:
        yield f"watching took {100 * overhead:.2g} % of the time"
    if run.disordered:
        yield f"{count_words(run.disordered, 'record')} came out of order and were left out"


def _by_optimizer(run: Run) -> str:
    counts = run.skipped_by
    if len(counts) < 2 or not run.skipped:
        return ""
    return ": " + ", ".join(f"{name or 'unnamed'} {count:,}" for name, count in counts.items())


def _finding_lines(finding: Finding) -> Iterator[str]:
    """What was found and, where something is wrong, what to do about it."""
    yield f"{finding.severity:<8}{finding.rule}: {finding.message}"
    place = ", ".join(part for part in (when_words(finding), where_words(finding)) if part)
    if place:
        yield f"        {place}"
    rule = RULE_BY_ID.get(finding.rule)
    if rule is not None and finding.severity in TROUBLING:
        yield f"        what to do: {rule.remedy}"


def _of_note(event: Event) -> bool:
    """How it ended stands at the top already; growth and the like are the normal rhythm."""
    return event.kind != "failed" and (event.severity != "info" or event.kind == "knob")


def _event_line(event: Event) -> str:
    text = event.text
    return text if text.startswith("step") else f"step {event.step}: {text}"
