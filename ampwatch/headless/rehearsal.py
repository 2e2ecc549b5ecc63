"""Plays a lesson without a screen: a real training, the lesson's own keys, no waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ampwatch.job import ENDED, FAILED, Job
from ampwatch.lessons.learner import Learner
from ampwatch.lessons.page import page_of
from ampwatch.lessons.player import BLOCKED, LATE, NEXT, Player
from ampwatch.session import Session
from ampwatch.words import count_words

PATIENCE = 60.0
"""Seconds without a record; a lesson is bounded by steps of its run, this is for one that hangs."""
POLL_SECONDS = 0.002
LATE_POLLS = 200
"""A record that belongs to the step that has just come may be on its way still."""
STUCK_STEPS = 2000
"""A part that the run is in the wrong state for has no bound of its own."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How it went."""

    done: bool
    parts: int
    """Parts that were gone through."""
    steps: int
    seconds: float
    reason: str = ""
    """Why it did not get to its end."""


def rehearse(player: Player, session: Session, job: Job, press: Callable[[str], None]) -> Rehearsal:
    """Start the job and play the lesson to its end, or to the part that does not come true.

    Args:
        press: does what a key of the dashboard does.
    """
    begun = heard = time.monotonic()
    learner = Learner()
    late = 0
    job.start()

    def told(reason: str) -> Rehearsal:
        seconds = time.monotonic() - begun
        return Rehearsal(not reason, player.index, session.run.steps, seconds, reason)

    while True:
        change = session.pump()
        player.advance(session.run)
        for key in learner.keys(player):
            if key == NEXT or key in "abc":
                player.key(key)
            else:
                press(key)
        if player.error is not None:
            return told(player.error)
        if player.finished:
            return told("")
        refused = next((each.text for each in change.notices if each.refused), None)
        if refused is not None:
            return told(f"part {player.index + 1}: a key was refused: {refused}")
        late = late + 1 if player.state == LATE else 0
        if late > LATE_POLLS or (player.state == BLOCKED and player.waited > STUCK_STEPS):
            return told(f"part {player.index + 1} did not come true: {page_of(player).trouble}")
        if not change and job.state in ENDED:
            why = f": {job.error}" if job.state == FAILED else ""
            after = count_words(session.run.steps, "step")
            return told(f"part {player.index + 1}: the training ended after {after}{why}")
        heard = time.monotonic() if change else heard
        if time.monotonic() - heard > PATIENCE:
            return told(f"part {player.index + 1}: nothing came for {PATIENCE:g} seconds")
        if not change:
            time.sleep(POLL_SECONDS)
