"""What is learned of steps when they are some steps back, where numbers come late."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampwatch.probe.draft import Draft


class Tale:
    """Of steps that went wrong in one way.

    Attributes:
        told: how many have told why.
        untold: how many have not.
        latest: the latest of these.
    """

    __slots__ = ("latest", "told", "untold")

    def __init__(self) -> None:
        self.told = self.untold = 0
        self.latest = -1

    def add(self, step: int, explained: bool) -> None:
        """One more."""
        if explained:
            self.told += 1
        else:
            self.untold += 1
            self.latest = step


class News:
    """Of all steps so far.

    Attributes:
        skips: steps that were skipped beside a finite loss.
        losses: steps with a loss that is not finite.
        vanished: some gradient was 0 throughout at a step since this was last cleared.
    """

    __slots__ = ("losses", "skips", "vanished")

    def __init__(self) -> None:
        self.skips, self.losses = Tale(), Tale()
        self.vanished = False

    def add(self, draft: Draft, skipped: bool) -> None:
        """A draft was finished."""
        if not draft.finite_loss:
            self.losses.add(draft.step, draft.explained)
        elif skipped:
            self.skips.add(draft.step, draft.explained)
        elif draft.vanished:
            self.vanished = True
