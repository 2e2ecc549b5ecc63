"""Runs made by hand for the tests about comparisons: their figures are known by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ampwatch.compare import VARIANT_BY_NAME
from ampwatch.compare.figures import FINISHED, Ended
from ampwatch.compare.track import Track
from ampwatch.record import Notice, RunInfo, StepRecord, TensorStats


def stats(step: int, zeros: Sequence[int], size: int = 100, nonfinite: int = 0) -> TensorStats:
    """Of one detail step: so many zeros in each of some gradients of ``size`` values."""
    count = len(zeros)
    return TensorStats(
        step,
        tuple(f"layer{n}" for n in range(count)),
        (1.0,) * count,
        (1.0,) * count,
        tuple(zeros),
        (nonfinite,) + (0,) * (count - 1),
        (size,) * count,
    )


def track(
    losses: Sequence[float],
    seconds: float = 0.01,
    *,
    blocks: int = 4,
    device: str = "cpu",
    metrics: dict[str, float] | None = None,
    zeros: dict[int, Sequence[int]] | None = None,
    skipped: Sequence[int] = (),
) -> Track:
    """A run of ``len(losses)`` steps: two of warm-up, ``blocks`` blocks, one left over."""
    made = Track()
    made.add(RunInfo("made", 0.0, device=device))
    length = (len(losses) - 3) // blocks
    now, step = 0.0, 0

    def take(count: int) -> None:
        nonlocal now, step
        for _ in range(count):
            now += seconds
            made.add(
                StepRecord(step, now, losses[step], skipped=step in skipped, metrics=metrics or {})
            )
            if zeros and step in zeros:
                made.add(stats(step, zeros[step]))
            step += 1

    take(2)
    for _ in range(blocks):
        now += 100.0  # the others take their turns
        made.begin_block(length)
        take(length)
        made.add(Notice("", "step", length * seconds))
    take(len(losses) - step)
    made.ended()
    return made


def ended(name: str, made: Track, status: str = FINISHED, **known: Any) -> Ended:
    return Ended(VARIANT_BY_NAME[name], made, status, **known)


def falling(start: float = 1.0, end: float = 0.1, steps: int = 43) -> list[float]:
    """Losses that fall to ``end`` in a straight line and stay there for the last ten steps."""
    way = steps - 11
    return [start + (end - start) * min(step / way, 1.0) for step in range(steps)]
