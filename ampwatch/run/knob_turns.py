"""Knobs that have another value than at the step before, and what that means."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from ampwatch.record import StepRecord
from ampwatch.words import number_words

KNOBS = ("dtype", "scaler", "target_gain", "loss_gain")

knobs = itemgetter(*map(StepRecord._fields.index, KNOBS))
"""The values of all of them in a record, in one call: it is made once a step."""


def knob_changes(old: StepRecord, new: StepRecord) -> Iterator[tuple[str, str]]:
    """The knobs that differ between two steps of one optimizer, and what to say of each."""
    if new.dtype != old.dtype and new.dtype is not None and old.dtype is not None:
        yield "dtype", f"autocast now lowers to {new.dtype} (it was {old.dtype})"
    if new.scaler != old.scaler and new.scaler is not None:
        was = f" (it was {old.scaler})" if old.scaler is not None else ""
        yield "scaler", f"the scaler is now {new.scaler}{was}"
    if new.target_gain != old.target_gain:
        yield "target_gain", _gain_text("targets", old.target_gain, new.target_gain)
    if new.loss_gain != old.loss_gain:
        yield "loss_gain", _gain_text("loss", old.loss_gain, new.loss_gain)


def _gain_text(what: str, old: float | None, new: float | None) -> str:
    before, after = old if old is not None else 1.0, new if new is not None else 1.0
    if after == 1:
        return f"{what} back to ×1 by key"
    verb = "enlarged" if after > before else "reduced"
    return f"{what} {verb} to ×{number_words(after)} by key"


def harder(before: StepRecord, record: StepRecord) -> bool:
    """Whether a knob was turned such that the scale has to look for a new level."""
    larger = (record.target_gain or 1) > (before.target_gain or 1)
    louder = (record.loss_gain or 1) > (before.loss_gain or 1)
    narrower = record.dtype == "float16" and before.dtype != "float16"
    return larger or louder or narrower
