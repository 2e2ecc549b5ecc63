"""The stage of backward: the gradients as they come, and where inf comes up among them."""

from __future__ import annotations

from collections.abc import Iterable

from ampwatch.explain.figures import counted, dtype, form, number, scale_of, times
from ampwatch.explain.followed import flushed_words, followed_block
from ampwatch.explain.forward import lost, where
from ampwatch.explain.limits import below
from ampwatch.explain.stage import Block, Line, Stage
from ampwatch.formats import FLOAT16
from ampwatch.record import Operation, StepAnatomy

KEPT_FINITE, FEWEST_LEFT_OUT = 2, 3
_END_OF_HALF = f"What is beyond {number(FLOAT16.largest)} is inf in float16."


def _passes(operations: Iterable[Operation], *dtypes: str) -> bool:
    return any(each.gradient in dtypes for each in operations)


def gradients(anatomy: StepAnatomy) -> Stage:
    title = "Gradients: as backward made them"
    if anatomy.scale is not None:
        title += f", × {scale_of(anatomy.scale)}"
    if not anatomy.tensors:
        return Stage("gradients", title, "No parameter has got a gradient.", absent=True)
    followed = followed_block(anatomy, "gradients")
    back = _back(anatomy)
    if anatomy.nonfinite_values:
        text = f"{_where_inf(anatomy)} {_parameters(anatomy)}"
        return Stage("gradients", title, text, (*back, *followed), bad=True)
    text = f"{_flow(anatomy)} {_parameters(anatomy)}"
    if anatomy.followed is not None and anatomy.scale is not None:
        text += f" {flushed_words(anatomy.followed)}"
    return Stage("gradients", title, text.strip(), (*followed, *back))


def _where_inf(anatomy: StepAnatomy) -> str:
    """Where inf or NaN came up first on the way back."""
    at = anatomy.infinite_at()
    first = f", first in that of {anatomy.origin}" if anatomy.origin else ""
    if anatomy.injected:
        return f"A key has put one inf into the gradients{first}; the step itself made none."
    if lost(anatomy):
        return f"The loss is {number(anatomy.loss)}, so what comes back from it cannot be finite."
    if at is None:
        flowing = [each for each in anatomy.operations if each.gradient is not None]
        if not flowing:
            return f"There is inf or NaN among the gradients{first}."
        text = (
            "Every gradient between the operations is finite; inf came up where they are "
            f"multiplied and summed into gradients of parameters{first}."
        )
        return f"{text} {_END_OF_HALF}" if _passes(flowing, "float16") else text
    size = at.size or at.gradient_nonfinite or 0
    text = (
        f"inf came up in the gradient of the result of {where(at)}, in {at.gradient}: "
        f"{at.gradient_nonfinite:,} of {counted(size, 'value')}."
    )
    before = _one_nearer_the_loss(anatomy, at)
    if before is not None:
        text += (
            f" The gradient that came in from {where(before)} was still finite "
            f"({before.gradient}, at most {number(before.gradient_largest)})."
        )
    return f"{text} {_END_OF_HALF}" if at.gradient == "float16" else text


def _one_nearer_the_loss(anatomy: StepAnatomy, at: Operation) -> Operation | None:
    """The operation after it in the forward pass, if a gradient came back to it."""
    place = next(i for i, each in enumerate(anatomy.operations) if each is at)
    later = anatomy.operations[place + 1 :]
    return next((each for each in later if each.gradient is not None), None)


def _flow(anatomy: StepAnatomy) -> str:
    """In which dtype gradients flow between the operations, and how near to its end they are."""
    flowing = [each for each in anatomy.operations if each.gradient is not None]
    low = [each for each in flowing if each.gradient in ("float16", "bfloat16")]
    if not low:
        return "No gradient passes through float16 on its way." if flowing else ""
    largest = max(low, key=lambda each: each.gradient_largest or 0.0)
    limits = form(largest.gradient)
    assert limits is not None
    size = largest.gradient_largest or 0.0
    return (
        f"Between {counted(len(low), 'operation')} gradients are {largest.gradient}: "
        f"{below(size, limits)}."
    )


def _parameters(anatomy: StepAnatomy) -> str:
    kinds = " and ".join(anatomy.gradient_dtypes)
    text = f"The gradients of the {counted(anatomy.tensors, 'parameter tensor')} are {kinds}"
    if _passes(anatomy.operations, "float16", "bfloat16") and kinds == "float32":
        text += ", cast from what came through the narrower dtype"
    largest = anatomy.gradient_largest
    if largest:
        text += f"; the largest finite value is {number(largest)}"
        if _passes(anatomy.operations, "float16") and largest <= FLOAT16.largest:
            text += f", and {times(FLOAT16.largest, largest)} as much would fit float16"
    return f"{text}."


def _back(anatomy: StepAnatomy) -> tuple[Block, ...]:
    """The gradient of each operation's result, in the order of backward."""
    first = anatomy.infinite_at()
    lines = []
    for each in reversed(anatomy.operations):
        if each.gradient is None:
            continue
        bad = bool(each.gradient_nonfinite)
        note = "inf starts here" if each is first and not lost(anatomy) else ""
        cells = (
            where(each),
            dtype(each.gradient),
            number(each.gradient_largest),
            f"{each.gradient_nonfinite:,}" if bad else "0",
            note,
        )
        lines.append(Line(cells, "bad" if bad else ""))
    if not lines:
        return ()
    lines = _without_the_calm(lines)
    head = ("gradient of the result of", "dtype", "largest", "inf/NaN", "")
    return (Block("on the way back, from the loss", head, tuple(lines)),)


def _without_the_calm(lines: list[Line]) -> list[Line]:
    """Where inf comes up after many operations, the finite ones before it are left out."""
    first = next((at for at, line in enumerate(lines) if line.mark == "bad"), 0)
    left_out = first - KEPT_FINITE - 1
    if left_out < FEWEST_LEFT_OUT:
        return lines
    said = Line((f"… {left_out} more, all finite", "", "", "", ""))
    return [lines[0], said, *lines[first - KEPT_FINITE :]]
