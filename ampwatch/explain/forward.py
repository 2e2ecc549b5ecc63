"""The stages before backward: the forward pass, the loss, the scaled loss."""

from __future__ import annotations

import math

from ampwatch.explain.figures import counted, dtype, dtypes, exact, form, number, scale_of
from ampwatch.explain.limits import beyond, fits
from ampwatch.explain.stage import Block, Line, Stage
from ampwatch.formats import FLOAT16
from ampwatch.record import Operation, StepAnatomy

MOST_NAMES = 4
FILLING = frozenset(["masked_fill", "where", "full_like", "index_fill", "masked_scatter"])
"""They put in the values that they are handed: -inf where attention is not to look."""
OVERFLOW = (
    "the forward pass itself overflows, before any scale is applied, so the scaler cannot help."
)
HARMLESS = (
    "what follows makes something finite of them, as softmax does where attention is masked with "
    "-inf."
)


def where(operation: Operation) -> str:
    """linear in head; mse_loss."""
    return f"{operation.name} in {operation.module}" if operation.module else operation.name


def forward(anatomy: StepAnatomy) -> Stage:
    title = "Forward: what autocast made of each operation"
    operations = anatomy.operations
    if not operations:
        why = anatomy.no_operations or "none was seen"
        return Stage("forward", title, f"The operations cannot be listed: {why}.", absent=True)
    text = _kinds(anatomy)
    first = _first_bad(anatomy)
    overflowed = first is not None and not _survived(anatomy)
    if first is not None:
        text += f" In the result of {where(first)}, {_bad_values(first)}: "
        text += OVERFLOW if overflowed else HARMLESS
    if anatomy.left_out:
        text += f" {counted(anatomy.left_out, 'more operation')} followed."
    lines = tuple(
        Line(
            (
                _bracketed(each),
                dtypes(each.inputs),
                dtypes(each.weights),
                dtype(each.output),
                _reach(each.largest, each.nonfinite),
            ),
            "bad" if each.nonfinite and overflowed else "",
        )
        for each in operations
    )
    head = ("operation", "inputs", "weights", "result", "largest")
    return Stage("forward", title, text, (Block("", head, lines),), bad=overflowed)


def _first_bad(anatomy: StepAnatomy) -> Operation | None:
    """Where inf or NaN came up first: in what was computed, if there is any, not put in."""
    bad = [each for each in anatomy.operations if each.nonfinite]
    return next((each for each in bad if each.name not in FILLING), bad[0] if bad else None)


def _survived(anatomy: StepAnatomy) -> bool:
    """Whether the loss is finite all the same; where none was seen, the gradients."""
    if anatomy.loss is None:
        return not anatomy.nonfinite_values
    return not lost(anatomy)


def lost(anatomy: StepAnatomy) -> bool:
    """Whether the loss was seen and is inf or NaN."""
    return anatomy.loss is not None and not math.isfinite(anatomy.loss)


def _bracketed(operation: Operation) -> str:
    return f"{operation.name} ({operation.module})" if operation.module else operation.name


def _reach(largest: float | None, nonfinite: int | None) -> str:
    if nonfinite:
        return f"{nonfinite:,} inf/NaN"
    return number(largest)


def _bad_values(operation: Operation) -> str:
    some = operation.nonfinite or 0
    of = f" of {operation.size:,}" if operation.size else ""
    return f"{some:,}{of} values are inf or NaN"


def _kinds(anatomy: StepAnatomy) -> str:
    """Which operations ran in which dtype."""
    made: dict[str, list[str]] = {}
    for each in anatomy.operations:
        made.setdefault(each.output or "", []).append(each.name)
    if len(made) == 1:
        only = next(iter(made))
        if only == "float32":
            return "Every operation made float32: autocast lowered none of them."
        return f"Every operation made {only}."
    low = anatomy.dtype if anatomy.dtype in made else max(made, key=lambda kind: len(made[kind]))
    names = made.pop(low)
    others = "; ".join(f"{_few(rest)} made {kind}" for kind, rest in made.items())
    total = len(anatomy.operations)
    text = f"{len(names)} of {total} operations made {low}: {_few(names)}. {others}."
    if any(each.output == low and "float32" in each.weights for each in anatomy.operations):
        text += " The weights stay float32: autocast works on copies of them."
    return text


def _few(names: list[str]) -> str:
    several = list(dict.fromkeys(names))
    shown = ", ".join(several[:MOST_NAMES])
    return f"{shown} and others" if len(several) > MOST_NAMES else shown


def loss(anatomy: StepAnatomy) -> Stage:
    title = "Loss: one number says how wrong the model is"
    value = anatomy.loss
    if value is None:
        return Stage("loss", title, "No backward pass of a loss was seen.", absent=True)
    text = f"The loss is {number(value)}, in {anatomy.loss_dtype or 'an unknown dtype'}."
    bad = lost(anatomy)
    maker = anatomy.operations[-1] if anatomy.operations else None
    if bad:
        text += " The forward pass has overflowed or divided by 0: no scale can mend that."
    elif maker is not None and maker.output == anatomy.loss_dtype and maker.inputs:
        text += f" {maker.name} made it from {dtypes(maker.inputs)}."
    if anatomy.losses > 1:
        text += (
            f" The step adds up the gradients of {anatomy.losses} backward passes; operations and "
            "losses are those of the first, gradients those of all."
        )
    return Stage("loss", title, text, bad=bad)


def scaled_loss(anatomy: StepAnatomy) -> Stage:
    title = "Scaled loss: where backward starts from"
    scale, value, scaled = anatomy.scale, anatomy.loss, anatomy.scaled_loss
    if scale is None or scaled is None:
        text = f"{no_scale(anatomy)} Backward starts from the loss itself."
        return Stage("scale", title, text, absent=True)
    product = _product(anatomy, value, scale, scaled)
    if lost(anatomy):
        text = f"{product} No scale makes that finite."
        return Stage("scale", title, text, bad=True)
    larger = f"Every gradient comes out {number(scale)} times as large."
    text = f"{product} {larger} {fits(scaled, FLOAT16)}"
    own = form(anatomy.loss_dtype)
    if beyond(scaled, FLOAT16) and own is not None and not beyond(scaled, own):
        text += f" That does no harm here: the loss is {anatomy.loss_dtype}."
    return Stage("scale", title, text, bad=scaled - scaled != 0)


def _product(anatomy: StepAnatomy, loss: float | None, scale: float, scaled: float) -> str:
    if loss is None:
        return f"Backward starts from {number(scaled)}, with the scale {scale_of(scale)} in it."
    gain = anatomy.loss_gain
    factor = "" if gain == 1 else f" × {number(gain)} (loss gain)"
    expected = loss * gain * scale
    product = f"{exact(loss)}{factor} × {scale_of(scale)} = {number(expected)}."
    if expected == 0 or abs(scaled / expected - 1) < 1e-2 or scaled - scaled != 0:
        return product
    return f"{product} The loop goes on with {number(scaled)}: {number(scaled / expected)} of it."


def no_scale(anatomy: StepAnatomy) -> str:
    """Why no scale is in the gradients."""
    if anatomy.scaler is None:
        if anatomy.dtype == "float16":
            return "This loop has no GradScaler, although it computes in float16."
        return f"This loop has no GradScaler; in {anatomy.dtype or 'float32'} it needs none."
    if anatomy.scaler == "off":
        return "The scaler is off."
    return "The loss was not scaled."
