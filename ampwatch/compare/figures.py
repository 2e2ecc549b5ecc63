"""From the tracks of all runs to one row of figures a variant: pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev, quantiles

from ampwatch.compare.track import Track
from ampwatch.compare.variants import Variant
from ampwatch.rules import Finding

FINAL_STEPS = 10
"""The final loss is the mean of so many: one batch says little."""
VAGUE = 1.5
"""Where the upper quartile of the ratios is so many times the lower one, and that is below 1, some
rounds say faster and others something else: on a quiet machine quartiles are a few percent apart.
"""
FINISHED, FAILED, STOPPED, IMPOSSIBLE = "finished", "failed", "stopped", "not possible"
"""How a run went. "not possible": the loop has nothing to switch that way."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One run as it was left behind."""

    variant: Variant
    track: Track
    status: str
    error: str | None = None
    """Why it failed, or why it is not possible."""
    final_scale: float | None = None
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Everything the table says of a variant; None is "not measured"."""

    variant: Variant
    status: str
    error: str | None = None
    steps: int = 0
    seconds: float | None = None
    """A step, the median over the blocks of their medians."""
    ratio: float | None = None
    """Of a step's time to the baseline's in the same round: the median over the rounds."""
    ratio_low: float | None = None
    """The lower quartile of that ratio."""
    ratio_high: float | None = None
    """The upper quartile."""
    memory: float | None = None
    """Bytes: of the device where it counts them, otherwise what is saved for backward."""
    memory_kind: str | None = None
    """"peak" or "saved"."""
    memory_ratio: float | None = None
    first_loss: float | None = None
    start_loss: float | None = None
    """The mean of the first losses."""
    final_loss: float | None = None
    """The mean of the last losses."""
    last_loss: float | None = None
    spread: float | None = None
    """Standard deviation of the last losses: what differs between batches anyway."""
    difference: float | None = None
    """Of the final loss, to the baseline's."""
    skipped: int = 0
    flushed: float | None = None
    """Share of the gradient values that are 0 here and not in the baseline."""
    final_scale: float | None = None
    findings: Sequence[Finding] = field(default_factory=tuple)

    @property
    def unsure(self) -> bool:
        """Whether the rounds differ too much to tell whether it is faster than the baseline."""
        low, high = self.ratio_low, self.ratio_high
        return low is not None and high is not None and low < 1.0 and high > VAGUE * low


def rows(runs: Sequence[Ended], baseline: str) -> list[Row]:
    """One row a run, in their order.

    Args:
        baseline: the name of the variant that the others are measured against.
    """
    base = next((run for run in runs if run.variant.name == baseline), None)
    track = None if base is None or base.status == IMPOSSIBLE else base.track
    return [_row(run, track) for run in runs]


def _row(run: Ended, base: Track | None) -> Row:
    if run.status == IMPOSSIBLE:
        return Row(run.variant, run.status, run.error)
    track = run.track
    ratios = [] if base is None else _ratios(track, base)
    low, middle, high = _quartiles(ratios)
    memory, kind = _memory(track)
    base_memory, base_kind = (None, None) if base is None else _memory(base)
    final = final_loss(track.losses)
    base_final = None if base is None else final_loss(base.losses)
    return Row(
        variant=run.variant,
        status=run.status,
        error=run.error,
        steps=track.steps,
        seconds=step_seconds(track),
        ratio=middle,
        ratio_low=low,
        ratio_high=high,
        memory=memory,
        memory_kind=kind,
        memory_ratio=(
            memory / base_memory if memory and base_memory and kind == base_kind else None
        ),
        first_loss=track.losses[0] if track.losses else None,
        start_loss=fmean(track.losses[:FINAL_STEPS]) if track.losses else None,
        final_loss=final,
        last_loss=track.losses[-1] if track.losses else None,
        spread=_spread(track.losses[-FINAL_STEPS:]),
        difference=None if final is None or base_final is None else final - base_final,
        skipped=track.skipped,
        flushed=None if base is None else flushed(track.zeros, base.zeros),
        final_scale=run.final_scale,
        findings=tuple(run.findings),
    )


def step_seconds(track: Track) -> float | None:
    """A step's time: the median over the blocks."""
    blocks = [block for block in track.blocks if block is not None]
    return median(blocks) if blocks else None


def final_loss(losses: Sequence[float]) -> float | None:
    """The mean of the last ten losses; inf or NaN if one of them is."""
    last = losses[-FINAL_STEPS:]
    return math.fsum(last) / len(last) if all(map(math.isfinite, last)) and last else _bad(last)


def _spread(losses: Sequence[float]) -> float | None:
    return pstdev(losses) if losses and all(map(math.isfinite, losses)) else None


def _bad(losses: Sequence[float]) -> float | None:
    return next((loss for loss in reversed(losses) if not math.isfinite(loss)), None)


def flushed(
    here: Mapping[int, tuple[int, int]], base: Mapping[int, tuple[int, int]]
) -> float | None:
    """Which share of the gradient values that the baseline has is 0 here.

    Over all detail steps that both have without inf and NaN, by number: zeros that the baseline
    has as well (a unit that is off, a word that is not in the batch) are no loss.
    """
    more = values = 0
    for step, (zeros, size) in here.items():
        base_zeros, base_size = base.get(step, (0, -1))
        if size == base_size:
            more += zeros - base_zeros
            values += size - base_zeros
    return max(more, 0) / values if values else None


def _ratios(track: Track, base: Track) -> list[float]:
    """Block by block: what disturbs the machine for a while disturbs both."""
    return [
        mine / theirs
        for mine, theirs in zip(track.blocks, base.blocks, strict=False)
        if mine is not None and theirs
    ]


def _quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not values:
        return None, None, None
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _memory(track: Track) -> tuple[float | None, str | None]:
    if track.peak_bytes is not None:
        return track.peak_bytes, "peak"
    if track.saved_bytes is not None:
        return track.saved_bytes, "saved"
    return None, None
