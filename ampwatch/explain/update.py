"""The stages after backward: unscale, check, clip, step, and the update of the scale."""

from __future__ import annotations

import math

from ampwatch.explain.figures import change, counted, exact, number, place, scale_of
from ampwatch.explain.followed import followed_block
from ampwatch.explain.forward import no_scale
from ampwatch.explain.stage import Stage
from ampwatch.record import Followed, ScalerInfo, StepAnatomy


def unscale(anatomy: StepAnatomy) -> Stage:
    title = "Unscale: the gradients get their true size back"
    scale = anatomy.scale
    if scale is None:
        return Stage("unscale", title, f"{no_scale(anatomy)} Nothing is divided.", absent=True)
    text = f"Every parameter gradient is divided by {scale_of(scale)}."
    if anatomy.fused:
        text = f"The fused optimizer divides by {scale_of(scale)} in its own kernel."
    if anatomy.clipped_scaled:
        text += " In this loop that comes after clipping."
    followed = anatomy.followed
    if followed is not None:
        value = followed.scaled[0]
        text += f" {_quotient(followed, value, scale)}"
    return Stage("unscale", title, text, followed_block(anatomy, "unscale"))


def _quotient(followed: Followed, value: float, scale: float) -> str:
    at = f"{followed.name}{place(followed.place(0))}"
    if not math.isfinite(value):
        return f"{at}: {number(value)} ÷ {number(scale)} is still {number(value)}."
    return f"{at}: {number(value)} ÷ {number(scale)} = {number(value / scale)}."


def check(anatomy: StepAnatomy) -> Stage:
    title = "Check: is there inf or NaN?"
    bad = anatomy.nonfinite_values
    seen = (
        f"{counted(bad, 'value')} in {counted(anatomy.nonfinite_tensors, 'gradient')} of "
        f"{anatomy.tensors:,} {'is' if bad == 1 else 'are'} inf or NaN"
    )
    if anatomy.found_inf is None:
        after = f" {seen}, and go into the weights." if bad else ""
        text = f"{no_scale(anatomy)} Nobody looks for inf or NaN.{after}"
        return Stage("check", title, text, absent=True, bad=bool(bad))
    if not anatomy.found_inf:
        text = f"found_inf is 0: every value of the {anatomy.tensors:,} gradients is finite."
        return Stage("check", title, text)
    text = f"found_inf is {number(anatomy.found_inf)}: {seen}"
    text += f"; in the order of backward the first is {anatomy.origin}." if anatomy.origin else "."
    return Stage("check", title, text, followed_block(anatomy, "unscale"), bad=True)


def clip(anatomy: StepAnatomy) -> Stage:
    title = "Clip: gradients that are too long together are shortened"
    norm, limit = anatomy.clip_norm, anatomy.clip_limit
    if norm is None or limit is None:
        text = "This loop does not clip by norm before this step."
        return Stage("clip", title, text, absent=True)
    if not math.isfinite(norm):
        text = f"The norm is {number(norm)}: to clip makes NaN or 0 of the gradients."
        return Stage("clip", title, text, followed_block(anatomy, "clip"), bad=True)
    if norm > limit:
        text = f"Their norm {number(norm)} is above {number(limit)}: all are multiplied by "
        text += f"{number(limit / norm, 3)}."
    else:
        text = f"Their norm {number(norm)} is not above {number(limit)}: they stay as they are."
    scale = anatomy.scale
    if anatomy.clipped_scaled and scale:
        text += (
            f" But they still carry the scale: a limit of {number(limit)} on scaled gradients is "
            f"one of {number(limit / scale)} on true ones. unscale_ has to come first."
        )
    blocks = followed_block(anatomy, "clip")
    return Stage("clip", title, text, blocks, bad=anatomy.clipped_scaled)


def step(anatomy: StepAnatomy) -> Stage:
    name = anatomy.optimizer or "The optimizer"
    blocks = followed_block(anatomy, "step")
    followed = anatomy.followed
    if anatomy.stepped:
        title = "Step: the weights move"
        text = f"{name} has stepped"
        text += f" with a learning rate of {number(anatomy.lr)}." if anatomy.lr else "."
        if followed is not None:
            text += f" {_moved(followed)}"
        ruined = followed is not None and not all(map(math.isfinite, followed.after))
        return Stage("step", title, text, blocks, bad=ruined)
    title = "Step: skipped"
    text = f"{name}.step was not called."
    if anatomy.fused:
        text = f"The fused {name} was handed found_inf and left the weights alone."
    elif anatomy.found_inf is None:
        text = f"The scaler refused these gradients: {name}.step was not called."
    if followed is not None:
        if followed.before == followed.after:
            text += f" Every weight keeps its bits: {followed.name}{place(followed.place(0))} is "
            text += f"{exact(followed.before[0])} before and after."
        else:
            text += f" Yet {followed.name} has changed: something else has written to it."
    return Stage("step", title, text, blocks, bad=True)


def _moved(followed: Followed) -> str:
    """How the first value that moved has moved, and how many did not although they should."""
    pairs = list(zip(followed.before, followed.after, strict=True))
    moved = next((which for which, (before, after) in enumerate(pairs) if before != after), None)
    rate = followed.clipped or followed.unscaled
    still = sum(
        before == after and value != 0 for (before, after), value in zip(pairs, rate, strict=True)
    )
    if moved is None:
        return (
            f"None of the followed weights has moved: an update below half of the last digit of a "
            f"{followed.dtype} rounds away."
            if still
            else "The followed gradients are 0, so their weights stay."
        )
    before, after = pairs[moved]
    at = f"{followed.name}{place(followed.place(moved))}"
    return f"{at} went from {exact(before)} to {exact(after)} ({change(before, after)})."


def update(anatomy: StepAnatomy, info: ScalerInfo | None) -> Stage:
    title = "Update: the scale for the next step"
    before, after = anatomy.scale, anatomy.scale_after
    if before is None or after is None or anatomy.scaler == "off":
        text = f"{no_scale(anatomy)} There is no scale to update."
        return Stage("update", title, text, absent=True)
    if anatomy.scaler == "static":
        text = f"The scale is kept at {scale_of(after)}: it is static."
        return Stage("update", title, text)
    tracker, old = anatomy.growth_tracker_after, anatomy.growth_tracker
    interval = None if info is None else info.growth_interval
    now = f"{scale_of(before)} × {number(after / before)} = {scale_of(after)}"
    if after < before:
        text = f"An overflow: {now}. The counter of good steps starts again"
        text += f" at {tracker}." if tracker is not None else "."
        return Stage("update", title, text)
    if after > before:
        steps = f"{interval:,} steps in a row" if interval else "Enough steps in a row"
        return Stage("update", title, f"{steps} without an overflow: {now}.")
    text = f"The scale stays at {scale_of(after)}."
    if tracker is not None and old is not None:
        text += f" Steps without an overflow since it last changed: {old:,} before, {tracker:,} now"
        factor = None if info is None else info.growth_factor
        text += f"; at {interval:,} it is multiplied by {number(factor)}." if interval else "."
    return Stage("update", title, text)
