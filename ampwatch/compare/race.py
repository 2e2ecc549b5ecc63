"""Runs all variants so that whatever else the machine does hits them alike.

Each runs in a process of its own, and only one at a time takes steps: in rounds, a block of steps
each, in alternating order, while the others wait at the end of a step. What is compared is the
time of a block with the baseline's block of the same round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ampwatch.compare.member import Member
from ampwatch.compare.switching import look

WARM_UP_STEPS = 10
"""The first steps make kernels, caches and optimizer states: they are not timed."""
ROUNDS = 10
FEWEST_BLOCK_STEPS = 4
"""The first of a block is not timed: three are left for a median."""
POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Plan:
    """How many steps are taken when."""

    steps: int
    warm_up: int
    rounds: int
    block: int

    @classmethod
    def of(cls, steps: int) -> Plan:
        """The plan for so many steps; the last one is left for the end, where all go on."""
        warm_up = max(2, min(WARM_UP_STEPS, steps // 4))
        left = max(steps - warm_up - 1, 0)
        rounds = min(ROUNDS, left // FEWEST_BLOCK_STEPS)
        return cls(steps, warm_up, rounds, left // rounds if rounds else 0)


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
        for number in range(self.plan.rounds):
            for member in group if number % 2 == 0 else reversed(group):
                self._block(member)
            for member in group:
                member.digest()
        for member in group:
            member.release()
        self._until(lambda: not any(member.alive for member in group))

    def _block(self, member: Member) -> None:
        if not member.alive:
            return
        if member.impossible is not None:
            self._until(lambda: not member.alive)
            return
        member.go(self.plan.block)
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
