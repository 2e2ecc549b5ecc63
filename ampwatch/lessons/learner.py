"""Which keys a learner presses who does what the lesson asks: for the unattended play."""

from __future__ import annotations

from ampwatch.lessons import player as states
from ampwatch.lessons.parts import CHOICES, Predict, Press
from ampwatch.lessons.player import NEXT, Player

AGAIN_STEPS = 8
"""After so many steps a key that is to be pressed again and again is pressed again."""
READING_STEPS = 10
"""A page is read for so many steps, where the run goes on meanwhile: nobody turns it at once."""


class Learner:
    """Reads each page, answers every question with the first choice and presses each key once."""

    def __init__(self) -> None:
        self._part: object = None
        self._next_at = 0

    def keys(self, player: Player) -> tuple[str, ...]:
        """What to press now; nothing while the lesson waits."""
        part, scene = player.part, player.scene
        if part is None or scene is None:
            return ()
        reads = player.state in (states.READING, states.ASKING) and not scene.paused
        if reads and player.waited < READING_STEPS:
            return ()
        if player.state == states.READING:
            return (NEXT,)
        if player.state == states.ASKING and isinstance(part, Predict):
            return (CHOICES[0],)
        if not isinstance(part, Press) or player.state != states.WAITING:
            return ()
        fresh = part is not self._part
        if not fresh and not (part.again and scene.run.steps >= self._next_at):
            return ()
        self._part, self._next_at = part, scene.run.steps + AGAIN_STEPS
        return player.asked
