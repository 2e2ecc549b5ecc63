"""When the next frame may be drawn: often enough to feel live, never above a share of a core."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from ampwatch.record import Notice
from ampwatch.session import Session

FRAMES_A_SECOND = 4.0
MOST_FRAMES_A_SECOND = 10.0
SHARE_OF_A_CORE = 0.10
LONGEST_WAIT = 0.5  # seconds; a frame that was very dear must not make the screen look dead
CATCH_UP_SECONDS = 0.1
"""How long one frame may take in records that have piled up: a long log, a fast loop."""


PLENTY = 500
"""Records of one pump behind which more are to be expected: logs are handed out in pieces."""


@dataclass(slots=True)
class Caught:
    """What one frame took in."""

    came: bool = False
    notices: list[Notice] = field(default_factory=list)
    behind: bool = False
    """There is more to take in already."""


def catch_up(session: Session) -> Caught:
    """Take in what came, for a while."""
    caught = Caught()
    until = time.monotonic() + CATCH_UP_SECONDS
    while True:
        change = session.pump()
        caught.came = caught.came or bool(change)
        caught.notices += change.notices
        caught.behind = bool(session.backlog) or change.records >= PLENTY
        if not caught.behind or time.monotonic() >= until:
            return caught


def wanted_rate(text: str | None) -> float:
    """Frames a second from AMPWATCH_FPS, or the default where it holds no sensible number."""
    try:
        rate = float(text or "")
    except ValueError:
        return FRAMES_A_SECOND
    if not rate > 0:
        return FRAMES_A_SECOND
    return min(rate, MOST_FRAMES_A_SECOND)


@dataclass(slots=True)
class Pace:
    """Tells how long to wait for the next frame from what the last one cost."""

    rate: float = FRAMES_A_SECOND
    share: float = SHARE_OF_A_CORE
    spent: float | None = None
    """Processor seconds of this process when the last frame was begun."""

    @classmethod
    def from_environment(cls) -> Pace:
        return cls(wanted_rate(os.environ.get("AMPWATCH_FPS")))

    def wait(self, processor_seconds: float) -> float:
        """Seconds until the next frame, told the process's processor time so far.

        The time since the last call is the whole cost of a frame: pumping, layout, writing.
        """
        before, self.spent = self.spent, processor_seconds
        usual = 1 / self.rate
        if before is None:
            return usual
        return min(max(usual, (processor_seconds - before) / self.share), LONGEST_WAIT)
