"""What is learned of steps when they are some steps back, where numbers come late."""

from __future__ import annotations

from collections.abc import Iterable
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


OF_INPUT = ("nonfinite-input", "forward-overflow:op=cast of the input to float16")
"""Facts that blame what a step was handed."""


class Remains:
    """Whether inf or NaN that a step is handed may be what a step before has left behind: the state
    that a recurrent network hands on, a running mean of outputs.

    That may be so as long as no loss was finite since one was inf or NaN for another cause, or for
    none that was seen. Only at the very first steps, as long as nobody has looked, it is taken for
    what it mostly is then: data that were so all along.
    """

    __slots__ = ("_clean", "_possible")

    def __init__(self) -> None:
        self._possible = self._clean = False

    def finite(self) -> None:
        """A loss was finite."""
        self._possible, self._clean = False, True

    def looked(self) -> None:
        """A step was not handed any that could be seen."""
        self._clean = True

    def believed(self, causes: Iterable[str]) -> list[str]:
        """A loss was inf or NaN: of the causes that were found those that are to be believed."""
        found = []
        for cause in causes:
            handed = cause.startswith(OF_INPUT)
            if handed and self._possible:
                continue
            found.append(cause)
            self._possible = self._possible or not handed
        if not found:
            self._possible = self._possible or self._clean
        return found


class News:
    """Of all steps so far.

    Attributes:
        skips: steps that were skipped beside a finite loss.
        losses: steps with a loss that is not finite.
        vanished: some gradient was 0 throughout at a step since this was last cleared.
        remains: what these losses may have left behind.
    """

    __slots__ = ("losses", "remains", "skips", "vanished")

    def __init__(self) -> None:
        self.skips, self.losses = Tale(), Tale()
        self.remains = Remains()
        self.vanished = False

    def add(self, draft: Draft, skipped: bool) -> None:
        """A draft was finished."""
        if not draft.finite_loss:
            self.losses.add(draft.step, draft.explained)
        elif skipped:
            self.skips.add(draft.step, draft.explained)
        elif draft.vanished:
            self.vanished = True
