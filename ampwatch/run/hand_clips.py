"""Clipping that no hook sees: done by hand, it leaves gradients that end at the same number at
every step, and where they still carry the scale it is the scaled ones that do."""

from __future__ import annotations

import math
from collections import Counter

from ampwatch.record import StepRecord, TensorStats
from ampwatch.run.spans import Span, extend

SCALED = 2.0**6
"""Below this scale a limit on scaled gradients and one on true ones look alike."""
SAME = 1e-3
"""A clip divides by norm + 1e-6, and by hand in other ways; gradients of two batches differ by
per cent."""
FEWEST_STEPS = 10
FEWEST_DETAILS = 2
MOVING = 0.02
"""Where the loss does not even move so much, gradients that stay the same are no wonder."""
PLAIN_LIMIT = 100.0
SMALL_LIMIT = 0.01
"""Limits that people choose lie between these two. One that is larger, and divided by the scale is
not too small, was multiplied by the scale on purpose, which is right."""


def for_scaled(limit: float, scale: float) -> bool:
    """Whether a limit was multiplied by the scale before it was put on scaled gradients."""
    return limit > PLAIN_LIMIT and limit / scale >= SMALL_LIMIT


class NormClip:
    """One optimizer's gradients, where their scaled norm is the same at every step."""

    __slots__ = ("_high", "_low", "_norm", "_row", "limit", "scale", "span")

    def __init__(self) -> None:
        self.span: Span | None = None
        self.limit = 0.0
        self.scale = 0.0
        self._row: Span | None = None
        self._norm = self._low = self._high = 0.0

    def see(self, record: StepRecord) -> None:
        """One more step with a norm and a scale."""
        scale, norm, loss = record.scale, record.grad_norm, record.loss
        if scale is None or norm is None or record.scaler in (None, "off") or scale < SCALED:
            return
        scaled = norm * scale
        if not 0 < scaled < math.inf:
            return
        if abs(scaled - self._norm) > SAME * self._norm:
            self._row, self._norm = Span(1, record.step, record.step), scaled
            self._low = self._high = abs(loss or 0.0)
            return
        row = self._row = extend(self._row, record.step)
        if loss is not None and loss - loss == 0:
            self._low, self._high = min(self._low, abs(loss)), max(self._high, abs(loss))
        if row.count < FEWEST_STEPS or for_scaled(scaled, scale):
            return
        if self._high > (1 + MOVING) * self._low and _round(scaled):
            self.span, self.limit, self.scale = Span(row.count, row.first, row.last), scaled, scale


class ValueClip:
    """Detail steps at which the largest scaled values of several gradients are one number."""

    __slots__ = ("_norm", "details", "limit", "scale", "span")

    def __init__(self) -> None:
        self.span: Span | None = None
        self.limit = 0.0
        self.scale = 0.0
        self.details = 0
        """In so many of them, with gradients that differ."""
        self._norm = 0.0

    @property
    def certain(self) -> bool:
        return self.details >= FEWEST_DETAILS

    def see(self, stats: TensorStats) -> None:
        scale = stats.scale
        if scale is None or scale < SCALED:
            return
        ends = Counter(f"{each * scale:.5g}" for each in stats.max if each > 0)
        if len(ends) and max(ends.values()) > 1:
            most, _ = ends.most_common(1)[0]
            limit, norm = float(most), math.hypot(*stats.norm)
            highest = max(stats.max) * scale
            if abs(highest - limit) <= SAME * limit and not for_scaled(limit, scale):
                if self.limit and abs(limit - self.limit) > SAME * limit:
                    self.details = 0
                elif abs(norm - self._norm) > SAME * norm:
                    self.details += 1
                    self.span = extend(self.span, stats.step)
                self.limit, self.scale, self._norm = limit, scale, norm
                return
        self.details = 0
        self.span, self.limit = None, 0.0


def _round(limit: float) -> bool:
    """Whether somebody may have written this number: two digits."""
    return math.isclose(limit, float(f"{limit:.1e}"), rel_tol=SAME)
