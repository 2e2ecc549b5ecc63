"""Runs all variants so that whatever else the machine does hits them alike.

Each runs in a process of its own, and only one at a time takes steps: in rounds, a block of steps
each, in alternating order, while the others wait at the end of a step. What is compared is the
time of a block with the baseline's block of the same round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ampwatch.compare.figures import step_seconds
from ampwatch.compare.member import Member
from ampwatch.compare.switching import look

WARM_UP_STEPS = 10
"""The first steps make kernels, caches and optimizer states: they are not timed."""
FEWEST_ROUNDS = 10
FEWEST_BLOCK_STEPS = 5
"""The first of a block is not timed: four are left for a median."""
BLOCK_SECONDS = 1.0
"""Blocks that last longer are further apart than the disturbances that they are to share."""
FIRST_BLOCK_STEPS = 20
"""As long as nobody knows how long a step takes."""
POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Plan:
    """How many steps are taken when."""

    steps: int
    warm_up: int
    most_block: int
    """Steps of a block: so many make at least ten rounds where there are enough of them."""

    @classmethod
    def of(cls, steps: int) -> Plan:
        """The plan for so many steps."""
        warm_up = max(2, min(WARM_UP_STEPS, steps // 4))
        fair = (steps - warm_up - 1) // FEWEST_ROUNDS
        return cls(steps, warm_up, max(fair, FEWEST_BLOCK_STEPS))

    def block(self, taken: int, step_seconds: float | None) -> int:
        """How many steps the next block has; 0 when too few are left.

        Args:
            taken: steps so far; one is left for the end, where all go on together.
            step_seconds: of the baseline, once that is known.
        """
        fitting = FIRST_BLOCK_STEPS
        if step_seconds:
            fitting = max(FEWEST_BLOCK_STEPS, round(BLOCK_SECONDS / step_seconds))
        size = min(self.most_block, fitting, self.steps - 1 - taken)
        return size if size >= FEWEST_BLOCK_STEPS else 0


class Interrupted(Exception):
    """Somebody wants it to end."""


class Race:
    """The variants of one loop, run side by side.

    Args:
        members: not started yet; the first is the baseline.
        plan: how many steps.
        tick: called some hundred times a second, to say how far it is; it may raise
            :class:`Interrupted`.
        together: whether all processes live at the same time; otherwise one comes after the
            other, which needs the memory of one and compares times less well.
    """

    def __init__(
        self,
        members: Sequence[Member],
        plan: Plan,
        tick: Callable[[], None],
        *,
        together: bool = True,
    ) -> None:
        self.members = members
        self.plan = plan
        self.together = together
        self._tick = tick

    def run(self) -> None:
        """Run all to their ends.

        Raises:
            Interrupted: by ``tick``; the processes are still there then.
        """
        groups = [self.members] if self.together else [[member] for member in self.members]
        for group in groups:
            self._run(group)

    def _run(self, group: Sequence[Member]) -> None:
        group = [member for member in group if member.impossible is None]
        for member in group:
            member.start(self.plan.warm_up)
        self._until(lambda: all(m.track.waits or not m.alive for m in group))
        for member in group:
            member.digest()
        look(self.members)
        self._rounds(group)
        for member in group:
            member.release()
        self._until(lambda: not any(member.alive for member in group))

    def _rounds(self, group: Sequence[Member]) -> None:
        """Blocks in turns until the steps are used up."""
        taken, turn = self.plan.warm_up, 0
        while any(member.alive for member in group):
            size = self.plan.block(taken, step_seconds(group[0].track))
            if not size:
                return
            for member in group if turn % 2 == 0 else reversed(group):
                self._block(member, size)
            for member in group:
                member.digest()
            taken += size
            turn += 1

    def _block(self, member: Member, size: int) -> None:
        if not member.alive:
            return
        if member.impossible is not None:
            self._until(lambda: not member.alive)
            return
        member.go(size)
        # One that comes to its end is waited for too: its farewell would disturb the next.
        self._until(lambda: member.track.waits or not member.alive)

    def _until(self, holds: Callable[[], bool]) -> None:
        while True:
            for member in self.members:
                member.take()
            self._tick()
            if holds():
                return
            time.sleep(POLL_SECONDS)
