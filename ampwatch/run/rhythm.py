"""Whether events fall on every n-th step, even where others lie between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

FEWEST_BEATS = 4
"""Three equal distances: two can be chance in a handful of events."""
SHORTEST = 3
"""Every step and every second one are runs of events, not a rhythm."""
NEIGHBOURS = 8
"""Between two events of a rhythm lie at most so many others."""
CHANCE = 0.05
"""Rhythms as long as the one found that so many events would show by chance, all periods that were
tried taken together."""
MOST_EVENTS = 256


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Events at every ``period``-th step from ``first`` to ``last``, none left out."""

    period: int
    first: int
    last: int
    beats: int

    def holds(self, step: int) -> bool:
        """Whether a step is one of its beats."""
        return self.first <= step <= self.last and (step - self.first) % self.period == 0

    def goes_on(self, step: int) -> bool:
        """Whether no beat has been left out up to this step."""
        return step < self.last + self.period


def rhythm_of(steps: Sequence[int], telling: Collection[int] | None = None) -> Rhythm | None:
    """The longest rhythm among the latest events, if it is one that chance does not explain.

    Args:
        steps: of the events, growing.
        telling: those that another, known rhythm does not explain; at least half of the beats
            must be among them. All of them are, unless said.
    """
    steps = steps[-MOST_EVENTS:]
    if len(steps) < FEWEST_BEATS:
        return None
    known = set(steps)
    told = known if telling is None else known & set(telling)
    distances = Counter(
        later - step
        for place, step in enumerate(steps)
        for later in steps[place + 1 : place + 1 + NEIGHBOURS]
    )
    periods = sorted(p for p, count in distances.items() if p >= SHORTEST and count > 1)
    share = (len(steps) - 1) / max(steps[-1] - steps[0], 1)
    best: Rhythm | None = None
    for period in periods:
        rhythm = _longest(steps, known, period)
        if rhythm.beats < FEWEST_BEATS or (best is not None and rhythm.beats <= best.beats):
            continue
        beats = range(rhythm.first, rhythm.last + 1, period)
        if 2 * sum(beat in told for beat in beats) < rhythm.beats:
            continue
        # Two events give a period and a place; each further beat is a hit by chance.
        if len(periods) * len(steps) * share ** (rhythm.beats - 2) <= CHANCE:
            best = rhythm
    return best


def _longest(steps: Sequence[int], known: set[int], period: int) -> Rhythm:
    """The longest row of events that lie ``period`` apart; of two the later one."""
    best = Rhythm(period, steps[0], steps[0], 1)
    for step in steps:
        if step - period in known:
            continue  # not where a row begins
        last, beats = step, 1
        while last + period in known:
            last, beats = last + period, beats + 1
        if beats >= best.beats:
            best = Rhythm(period, step, last, beats)
    return best
