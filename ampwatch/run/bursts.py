"""Skipped steps in a row, and what explains each run of them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Literal, TypeAlias

from ampwatch.record import StepRecord
from ampwatch.run.burst import Burst, Skip, Tally
from ampwatch.run.origins import origin_of
from ampwatch.run.rhythm import Rhythm, rhythm_of
from ampwatch.run.scale_changes import ScaleChange, ScaleTrack
from ampwatch.run.spans import Span, extend

Skips: TypeAlias = Literal["gradients", "losses", "nan", "overflow"]

SETTLED_STEPS = 10
"""So many steps in a row without an overflow, and a new scale has found its level."""
PROBE_STEPS = 2
PROBE_SHARE = 0.1
LIMIT_SHARE = 0.5
"""A skip belongs to the growth before it when it comes within a tenth of the growth interval (or
2 steps); within half of it, when the gradients were near float16's limit ever since."""
NEAR_LIMIT = 65504.0 / 4
KEPT_SKIPS = 512
SLOW_SKIPS = 5
SLOW_SHARE = 0.5
"""A scale that has not even halved after so many skips in a row does not adapt to speak of: torch's
own factor halves it at each of them."""
HEAVY = 1.5
"""A step with so many times the usual loss is not like the others."""


class BurstLedger:
    """The bursts of a run in fixed memory: the present one, and a tally for each kind."""

    __slots__ = ("_calm_since", "_known", "_settling", "ended", "nan", "open", "recent")

    def __init__(self) -> None:
        self.recent: deque[Skip] = deque(maxlen=KEPT_SKIPS)
        """The latest skipped steps, one by one."""
        self._known: dict[str, tuple[Skip, Rhythm | None]] = {}
        self.open: Burst | None = None
        """The burst that may still go on."""
        self.ended: dict[tuple[str, bool], Tally] = {}
        """By kind, those with NaN in the gradients at every step apart from the others."""
        self.nan: Span | None = None
        """Skips with NaN in the gradients beside a finite loss."""
        self._settling = True
        self._calm_since: int | None = None
        """The step since which nothing overflowed while the scale looks for its level."""

    @property
    def attentive(self) -> bool:
        """Whether a step that was taken tells it anything."""
        return self.open is not None or self._settling

    def expect_settling(self, step: int) -> None:
        """Gradients were made larger on purpose: the scale has to find a new level."""
        self._settling = True
        self._calm_since = step

    def scale_changed(self, step: int, change: ScaleChange) -> Burst | None:
        """Hear how the scale moved; returns the burst that this tells something new about."""
        if change.kind == "grew":
            self._settling = False
        elif change.kind == "set":
            self._settling = change.after > change.before
            self._calm_since = step
        burst = self.open
        if burst is None or burst.scale_last != change.before:
            return None
        after = None if change.kind == "set" else change.after
        if change.kind == "held" and burst.kind != "forward" and change.after > 0:
            burst.kind = "static"  # at 0 there is nothing left to halve
        if after == burst.scale_after and change.kind != "held":
            return None
        burst.scale_after = after
        return burst

    def taken(self, record: StepRecord) -> None:
        """A step that was not skipped; one optimizer's step does not end another's burst."""
        burst = self.open
        if burst is not None and record.step > burst.last:
            # Another optimizer's step may come before the next skip of the one that is skipped.
            same = record.optimizer == burst.latest_optimizer
            if same or record.step > burst.last + 1:
                self._compare(burst, record.loss)
                self._close(burst)
        if self._calm_since is None:
            self._calm_since = record.step
        if self._settling and record.step - self._calm_since >= SETTLED_STEPS:
            self._settling = False

    def skipped(
        self,
        record: StepRecord,
        track: ScaleTrack,
        before: StepRecord | None = None,
        usual_loss: float | None = None,
    ) -> Burst:
        """One more skipped step; returns the burst it is in.

        Args:
            before: the optimizer's step before.
            usual_loss: the level of the loss.
        """
        burst = self.open
        clean_before = track.clean_before
        after = track.expected(record)
        bad_loss = record.loss is not None and not _finite(record.loss)
        nan = record.grad_norm is not None and record.grad_norm != record.grad_norm and not bad_loss
        if burst is not None and (record.scale or 0) > (burst.scale_last or 0):
            # A larger scale without a taken step between: a new scaler, or a hand.
            self._close(burst)
            burst = None
        if burst is None:
            burst = self.open = Burst(
                kind="other",
                first=record.step,
                last=record.step,
                count=1,
                scale_before=record.scale,
                scale_last=record.scale,
                scale_after=after,
                tensors=record.nonfinite_tensors,
                origin=record.origin,
                optimizer=record.optimizer,
                latest_optimizer=record.optimizer,
                clean_before=clean_before,
                usual_loss=usual_loss,
                nan=int(nan),
            )
            burst.kind = self._kind(track, before)
            if after is not None and after == record.scale:
                burst.kind = "static"
        else:
            burst.count += record.step > burst.last
            burst.nan += nan and record.step > burst.last
            burst.last = record.step
            burst.scale_last = record.scale
            burst.scale_after = after
            burst.latest_optimizer = record.optimizer
            if burst.optimizer != record.optimizer:
                burst.optimizer = None
            if record.nonfinite_tensors is not None:
                burst.tensors = max(burst.tensors or 0, record.nonfinite_tensors)
            burst.origin = burst.origin or record.origin
            if burst.kind == "probe" and burst.count > _granted(track):
                burst.kind = "other"
            if _slow(burst):
                burst.kind = "static"
        if record.nonfinite_values is not None:
            burst.values = max(burst.values or 0, record.nonfinite_values)
        if burst.began is None or burst.began.place is None:
            burst.began = origin_of(record) or burst.began
        self._calm_since = record.step
        if nan:
            self.nan = extend(self.nan, record.step)
        if bad_loss:
            burst.nonfinite_losses += 1
            if burst.loss is None:
                burst.loss = record.loss
            burst.kind = "forward"
        if not self.recent or self.recent[-1].step < record.step:
            heavy = usual_loss is not None and (record.loss or 0.0) > HEAVY * usual_loss
            apart = heavy or record.step > track.changed_at
            self.recent.append(Skip(record.step, burst.kind, apart, nan))
        return burst

    def rhythm(self, of: Skips = "gradients") -> Rhythm | None:
        """Whether skips come at every n-th step for another reason than the growth of the scale.

        Args:
            of: "losses" that were inf or NaN, or "gradients" beside finite ones; of these those
                with "nan", or those without, which "overflow" alone explains.
        """
        if not self.recent:
            return None
        newest = self.recent[-1]
        known = self._known.get(of)
        if known is None or known[0] is not newest:
            skips = [skip for skip in self.recent if skip.kind != "static" and _among(skip, of)]
            apart = {skip.step for skip in skips if skip.apart or of in ("losses", "nan")}
            rhythm = rhythm_of([skip.step for skip in skips], apart)
            known = self._known[of] = (newest, rhythm)
        return known[1]

    def beside(self, rhythm: Rhythm, kind: str, of: Skips = "gradients") -> list[int]:
        """The latest skipped steps of a kind that the rhythm does not explain."""
        return [
            skip.step
            for skip in self.recent
            if skip.kind == kind and not rhythm.holds(skip.step) and _among(skip, of)
        ]

    def tally(self, kind: str, nan: bool = True) -> Tally | None:
        """All bursts of a kind, the present one included.

        Args:
            nan: those with NaN in the gradients at every step as well.
        """
        tally = self.ended.get((kind, False))
        others = self.ended.get((kind, True)) if nan else None
        if others is not None:
            tally = others if tally is None else tally.joined(others)
        burst = self.open
        if burst is None or burst.kind != kind or (_all_nan(burst) and not nan):
            return tally
        present = Tally()
        present.add(burst)
        return present if tally is None else tally.joined(present)

    def tallies(self) -> Iterator[tuple[str, Tally]]:
        """Every kind that was seen."""
        kinds = dict.fromkeys(kind for kind, _ in self.ended)
        if self.open is not None:
            kinds[self.open.kind] = None
        for kind in kinds:
            tally = self.tally(kind)
            if tally is not None:
                yield kind, tally

    def _kind(self, track: ScaleTrack, before: StepRecord | None) -> str:
        if self._settling:
            return "settling"
        if track.origin == "grew":
            interval = track.growth_interval or 0
            share = LIMIT_SHARE if before is not None and _near_limit(before) else PROBE_SHARE
            if track.clean_before <= max(PROBE_STEPS, int(share * interval)):
                return "probe"
        return "other"

    def _compare(self, burst: Burst, loss: float | None) -> None:
        """Where the loss stays as high after the skip as it was at it, nothing is lost: the same
        is learned from in the next step."""
        if burst.usual_loss is None or loss is None or not loss > HEAVY * burst.usual_loss:
            return
        for back in range(1, min(burst.count, len(self.recent)) + 1):
            self.recent[-back] = self.recent[-back]._replace(apart=False)

    def _close(self, burst: Burst) -> None:
        self.ended.setdefault((burst.kind, _all_nan(burst)), Tally()).add(burst)
        self.open = None


def _granted(track: ScaleTrack) -> int:
    """How many skips in a row take one growth back, and one more."""
    growth, backoff = track.growth_factor, track.backoff_factor
    if not (growth > 1 and 0 < backoff < 1):
        return 2
    return math.ceil(math.log(growth) / -math.log(backoff) - 1e-6) + 1


def _slow(burst: Burst) -> bool:
    before, after = burst.scale_before, burst.scale_after
    if before is None or after is None or burst.count < SLOW_SKIPS:
        return False
    return after > SLOW_SHARE * before


def _all_nan(burst: Burst) -> bool:
    return burst.nan == burst.count


def _among(skip: Skip, of: Skips) -> bool:
    if (skip.kind == "forward") != (of == "losses"):
        return False
    return of in ("losses", "gradients") or skip.nan == (of == "nan")


def _finite(value: float) -> bool:
    return value - value == 0


def _near_limit(record: StepRecord) -> bool:
    """Whether the gradients, while scaled, were of the size of float16's largest numbers."""
    norm, scale = record.grad_norm, record.scale
    return norm is not None and scale is not None and norm * scale >= NEAR_LIMIT
