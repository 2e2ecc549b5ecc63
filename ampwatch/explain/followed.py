"""The values that are followed through a step: one more row a stage."""

from __future__ import annotations

import math
from collections.abc import Callable

from ampwatch.explain.figures import change, dtype, exact, number, place, scale_of
from ampwatch.explain.stage import Block, Line
from ampwatch.formats import FLOAT16
from ampwatch.record import Followed, StepAnatomy

Row = tuple[str, str, tuple[str, ...], tuple[float, ...]]
"""At which stage it comes, what it is, its cells, and the values behind them."""


def followed_block(anatomy: StepAnatomy, stage: str) -> tuple[Block, ...]:
    """What has become of the followed values up to this stage; nothing without any."""
    followed = anatomy.followed
    if followed is None:
        return ()
    rows = _rows(anatomy, followed)
    order = [name for name, *_ in rows]
    last = max((at for at, name in enumerate(order) if name == stage), default=len(rows) - 1)
    lines = tuple(
        Line((label, *cells), _mark(values, new=name == stage))
        for name, label, cells, values in rows[: last + 1]
    )
    places = tuple(place(followed.place(which)) for which in range(len(followed.index)))
    return (Block(_title(followed), ("value at", *places), lines),)


def _title(followed: Followed) -> str:
    shape = "×".join(map(str, followed.shape)) or "1 value"
    weight, gradient = dtype(followed.dtype), dtype(followed.gradient_dtype)
    kinds = weight if weight == gradient else f"{weight}, gradient {gradient}"
    return f"followed: {followed.name} ({shape}, {kinds})"


def _rows(anatomy: StepAnatomy, followed: Followed) -> list[Row]:
    scale = anatomy.scale
    rows: list[Row] = []

    def add(
        stage: str,
        label: str,
        values: tuple[float, ...],
        show: Callable[[float], str] = number,
    ) -> None:
        rows.append((stage, label, tuple(map(show, values)), values))

    came = "gradient as it came" if scale else "gradient"
    add("gradients", came, followed.scaled)
    seen = tuple(map(FLOAT16.nearest, followed.scaled))
    if seen != followed.scaled and followed.nonfinite == 0:
        add("gradients", "the same in fp16", seen)
    if scale:
        alone = tuple(value / scale for value in followed.scaled)
        half = tuple(map(FLOAT16.nearest, alone))
        if any(map(math.isfinite, alone)):
            label = "fp16 without scale"
            lost = [
                "0 (lost)" if kept == 0 != value else number(kept)
                for value, kept in zip(alone, half, strict=True)
            ]
            rows.append(("gradients", label, tuple(lost), half))
        label = f"÷ {scale_of(scale)}"
        add("unscale", label, alone if anatomy.clipped_scaled else followed.unscaled)
    if followed.clipped:
        add("clip", "after clipping", followed.clipped)
    add("step", "weight before", followed.before, exact)
    add("step", "weight after", followed.after, exact)
    moved = tuple(map(change, followed.before, followed.after))
    rows.append(("step", "change", moved, ()))
    return rows


def _mark(values: tuple[float, ...], new: bool) -> str:
    if any(not math.isfinite(value) for value in values):
        return "bad"
    return "new" if new else ""


def flushed_words(followed: Followed) -> str:
    """What float16 would lose of this gradient without the scale."""
    size = math.prod(followed.shape)
    limit = f"2^{FLOAT16.flushed}"
    if followed.flushed is None or followed.nonfinite:
        return ""
    if not followed.flushed:
        return f"float16 would keep all of {followed.name} without the scale too."
    return (
        f"Without the scale {followed.flushed:,} of the {size:,} values of {followed.name} would "
        f"become 0 in float16: they are at most {limit}, half of its smallest number."
    )
