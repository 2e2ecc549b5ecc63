"""Explain mode: which step that was taken apart is shown, at which of its stages, and when the
next one is asked for. Knows no widget.
"""

from __future__ import annotations

from ampwatch import controls
from ampwatch.controls import Controls
from ampwatch.explain import Stage, stages
from ampwatch.job import STARTING, Job, runs
from ampwatch.record import StepAnatomy
from ampwatch.run import Run

NONE_RECORDED = (
    "No step of this recording was taken apart. Press e while a run is live, with --log: "
    "what it shows is recorded."
)
ENDED_WITHOUT = "The training ended before it took another step. Press r to start it again."
WAITING = "The next step is being taken apart…"
WAITING_FIRST = "Waiting for the first step; the one after it is taken apart."
LAST = "This was the last stage of the last step that was taken apart."
FIRST = "This is the first stage of the first step that was taken apart."


class Explaining:
    """Goes through the stages of steps.

    Args:
        panel: asks the training for a step.
        job: the training; None for a recording.
    """

    def __init__(self, panel: Controls, job: Job | None) -> None:
        self._panel = panel
        self._job = job
        self._run = Run()
        self._tensor: str | None = None
        self._resume = False
        """Whether the training went on by itself before."""
        self._before: StepAnatomy | None = None
        """What was the latest when a step was asked for."""
        self.open = False
        self.waiting = False
        self.trouble = ""
        """Why there will be no answer."""
        self._at: StepAnatomy | None = None
        self._stage = 0

    def enter(self, run: Run, tensor: str | None) -> str | None:
        """Take a step apart, or show the latest one of a run that is over.

        Args:
            tensor: the parameter to follow; None leaves the choice to the training.

        Returns:
            Why not, in a sentence.
        """
        live = runs(self._job)
        if not live and not run.anatomies:
            return NONE_RECORDED if self._job is None else ENDED_WITHOUT
        self.open, self._run, self._tensor, self.trouble = True, run, tensor, ""
        self._resume = live and not self._panel.value(controls.PAUSE)
        if live:
            self._ask()
        else:
            self._show(run.anatomies[-1], 0)
        return None

    def leave(self) -> None:
        """Go on as before."""
        if self.open and self._resume and runs(self._job):
            self._panel.request(controls.PAUSE, False)
        self.forget()

    def forget(self) -> None:
        """The run that was shown is gone."""
        self.open = self.waiting = self._resume = False
        self._at = self._before = None

    def follow(self, run: Run) -> None:
        """Bring it up to date with the run."""
        if not self.open:
            return
        if run is not self._run:  # another run of the same log
            self._run, self._at = run, None
        latest = run.anatomy
        if self.waiting and latest is not None and latest is not self._before:
            self.waiting = False
            self._show(latest, 0)
        elif self.waiting and not runs(self._job):
            self.waiting, self.trouble = False, ENDED_WITHOUT
        elif not self.waiting and self._at is None and latest is not None and not self.trouble:
            self._show(latest, 0)

    def refused(self, why: str) -> None:
        """The training says that it cannot be done."""
        if self.waiting:
            self.waiting, self.trouble = False, why

    def next(self) -> str | None:
        """To the next stage; after the last one, to the next step."""
        if self.waiting:
            return None
        if self._at is not None and self._stage + 1 < len(self.stages()):
            self._stage += 1
            return None
        later = self._neighbour(1)
        if later is not None:
            self._show(later, 0)
        elif runs(self._job):
            self._ask()
        else:
            return LAST
        return None

    def back(self) -> str | None:
        """To the stage before; from the first one, to the step before."""
        if self.waiting or self._at is None:
            return None
        earlier = self._neighbour(-1)
        if self._stage:
            self._stage -= 1
        elif earlier is not None:
            self._show(earlier, 0)
            self._stage = len(self.stages()) - 1
        else:
            return FIRST
        return None

    # What there is to see.

    @property
    def anatomy(self) -> StepAnatomy | None:
        return None if self.waiting else self._at

    @property
    def stage(self) -> int:
        return self._stage

    def stages(self) -> tuple[Stage, ...]:
        """The stages of the step that is shown."""
        if self._at is None:
            return ()
        info = self._run.info
        return stages(self._at, None if info is None else info.scaler)

    def words(self) -> str:
        """What to say while there is nothing to show."""
        if self.trouble:
            return self.trouble
        starting = self._job is not None and self._job.state == STARTING
        return WAITING_FIRST if starting and not self._run.steps else WAITING

    def _show(self, anatomy: StepAnatomy, stage: int) -> None:
        self._at, self._stage, self.trouble = anatomy, stage, ""

    def _ask(self) -> None:
        """The next step is to be taken apart, and the training waits after it.

        Paused first: then the three requests are dealt with between the same two steps.
        """
        self._before = self._run.anatomy
        self.waiting, self.trouble = True, ""
        self._panel.request(controls.PAUSE, True)
        self._panel.request(controls.EXPLAIN, self._tensor)
        self._panel.request(controls.STEP)

    def _neighbour(self, way: int) -> StepAnatomy | None:
        """The step that was taken apart after or before the one that is shown."""
        known = list(self._run.anatomies)
        place = next((i for i, each in enumerate(known) if each is self._at), None)
        if place is None or not 0 <= place + way < len(known):
            return None
        return known[place + way]
