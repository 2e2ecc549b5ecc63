"""Skipped steps in a row, and what explains each run of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ampwatch.record import StepRecord
from ampwatch.run.burst import Burst, Tally
from ampwatch.run.origins import origin_of
from ampwatch.run.scale_changes import ScaleChange, ScaleTrack
from ampwatch.run.skip_causes import ALL, found_in
from ampwatch.run.skip_list import Skip, SkipList
from ampwatch.run.spans import Span, note

SETTLED_STEPS = 10
"""So many steps in a row without an overflow, and a new scale has found its level."""
PROBE_STEPS = 2
PROBE_SHARE = 0.1
LIMIT_SHARE = 0.5
"""A skip belongs to the growth before it when it comes within a tenth of the growth interval (or
2 steps); within half of it, when the gradients were near float16's limit ever since."""
NEAR_LIMIT = 65504.0 / 4
SLOW_SKIPS = 5
SLOW_SHARE = 0.5
"""A scale that has not even halved after so many skips in a row does not adapt to speak of: torch's
own factor halves it at each of them."""
HEAVY = 1.5
"""A step with so many times the usual loss is not like the others."""


class BurstLedger:
    """The bursts of a run in fixed memory: the present one, and a tally for each kind."""

    __slots__ = ("_calm_since", "_settling", "causes", "ended", "open", "recent")

    def __init__(self) -> None:
        self.recent = SkipList()
        self.open: Burst | None = None
        """The burst that may still go on."""
        self.ended: dict[tuple[str, str], Tally] = {}
        """By kind and cause."""
        self.causes: dict[str, Span] = {}
        """Skipped steps by their likely cause."""
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
        cause: str,
        before: StepRecord | None = None,
        usual_loss: float | None = None,
    ) -> Burst:
        """One more skipped step; returns the burst it is in.

        Args:
            cause: of this skip.
            before: the optimizer's step before.
            usual_loss: the level of the loss.
        """
        burst = self.open
        clean_before = track.clean_before
        after = track.expected(record)
        bad_loss = record.loss is not None and not math.isfinite(record.loss)
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
            )
            burst.kind = self._kind(track, before)
            if after is not None and after == record.scale:
                burst.kind = "static"
        else:
            burst.count += record.step > burst.last
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
        burst.causes[cause] += 1
        found = found_in(record)
        if found is not None:
            burst.found.add(found)
        note(self.causes, cause, record.step)
        if bad_loss:
            burst.nonfinite_losses += 1
            if burst.loss is None:
                burst.loss = record.loss
            burst.kind = "forward"
        if not self.recent or self.recent[-1].step < record.step:
            heavy = usual_loss is not None and (record.loss or 0.0) > HEAVY * usual_loss
            apart = heavy or record.step > track.changed_at
            self.recent.append(Skip(record.step, burst.kind, cause, apart))
        return burst

    def tally(self, kind: str, causes: frozenset[str] = ALL) -> Tally | None:
        """All bursts of a kind that have such a cause, the present one included."""
        whole: Tally | None = None
        for cause in causes:
            ended = self.ended.get((kind, cause))
            if ended is not None:
                whole = ended if whole is None else whole.joined(ended)
        burst = self.open
        if burst is None or burst.kind != kind or burst.cause not in causes:
            return whole
        present = Tally()
        present.add(burst)
        return present if whole is None else whole.joined(present)

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
        self.recent.not_lost(burst.count)

    def _close(self, burst: Burst) -> None:
        self.ended.setdefault((burst.kind, burst.cause), Tally()).add(burst)
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


def _near_limit(record: StepRecord) -> bool:
    """Whether the gradients, while scaled, were of the size of float16's largest numbers."""
    norm, scale = record.grad_norm, record.scale
    return norm is not None and scale is not None and norm * scale >= NEAR_LIMIT
