"""Where the inf and NaN of one step began: in backward, in the loss, or before it."""

from __future__ import annotations

from typing import NamedTuple

from ampwatch.record import StepRecord
from ampwatch.record.facts import split_fact
from ampwatch.run.skip_causes import injected

FORWARD = ("forward-overflow", "nan-born", "epsilon-underflow", "mask-overflow", "diverged")
"""Facts about an operation of the forward pass."""
ENDS = ("loss", "binary_cross_entropy", "kl_div")
"""How the operations are called that make a loss."""


class Origin(NamedTuple):
    """Where it began."""

    where: str
    """"backward" (the loss was finite), "loss", "forward", "input" (the batch), "weights", or "key"
    (put in by hand)."""
    place: str | None = None
    """The operation or tensor, as far as it was found: "mul after encoder.norm"."""


def origin_of(record: StepRecord) -> Origin | None:
    """Where inf and NaN in the loss or the gradients of this step began; None without any."""
    facts = [split_fact(each) for each in record.facts]
    if record.loss is None or record.loss - record.loss == 0:
        if injected(record):
            return Origin("key")
        bad = bool(record.nonfinite_tensors or record.skipped)
        place = _place(facts, ("backward-origin",))
        return Origin("backward", place) if bad and (place or record.loss is not None) else None
    for name, details in facts:
        if name == "nonfinite-input":
            return Origin("input", details.get("name"))
        if name == "weights-nonfinite":
            return Origin("weights", details.get("tensor"))
        if name in FORWARD:
            operation = details.get("op", "")
            made = any(end in operation for end in ENDS)
            return Origin("loss" if made else "forward", _place(facts, FORWARD))
    return Origin("forward")


def began(origin: Origin) -> str:
    """The same in words that go on from "the loss itself was inf"."""
    where, place = origin
    if where == "key":
        return "put in by key"
    if where == "backward":
        return "made in backward" + (f", by {place}" if place else "")
    if where == "input":
        return "the batch" + (f" ({place})" if place else "") + ", not the scale"
    if where == "weights":
        return "the weights" + (f" ({place})" if place else "") + ", not the scale"
    what = "the loss function" if where == "loss" else "the forward pass"
    return what + (f" ({place})" if place else "") + ", not the scale"


def _place(facts: list[tuple[str, dict[str, str]]], names: tuple[str, ...]) -> str | None:
    for name, details in facts:
        if name not in names:
            continue
        operation = details.get("operation") or details.get("op")
        module, after = details.get("module"), details.get("after")
        if details.get("place") == "after":
            module, after = None, module
        words = [operation or ""]
        if module:
            words.append(f"in {module}")
        elif after:
            words.append(f"after {after}")
        return " ".join(filter(None, words)) or None
    return None
