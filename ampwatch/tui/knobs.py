"""The keys and palette entries of the training knobs, made from their declarations."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual.binding import Binding

from ampwatch import controls
from ampwatch.controls import Controls, Knob, Value
from ampwatch.job import ENDED, STOPPING, Job
from ampwatch.run import Run


@dataclass(frozen=True, slots=True)
class Turn:
    """One key of a knob, and which way it turns it."""

    knob: Knob
    key: str
    way: str
    """"next" choice, one notch "up" or "down", "press" for an action, "neutral" for back."""
    words: str
    footer: str = ""
    """The word in the footer; without one the key is listed in the help alone."""

    @property
    def name(self) -> str:
        return f"{self.knob.name}.{self.way}"


TURNS: tuple[Turn, ...] = (
    Turn(controls.PAUSE, "space", "next", controls.PAUSE.words, "Pause"),
    Turn(controls.STEP, "full_stop", "press", controls.STEP.words),
    Turn(controls.TARGET_GAIN, "t", "up", controls.TARGET_GAIN.words, "Targets"),
    Turn(controls.TARGET_GAIN, "T", "down", "Shrink the targets tenfold"),
    Turn(controls.LOSS_GAIN, "g", "up", controls.LOSS_GAIN.words),
    Turn(controls.LOSS_GAIN, "G", "down", "Shrink the loss tenfold"),
    Turn(controls.TARGET_GAIN, "0", "neutral", "Targets and loss back to ×1"),
    Turn(controls.DTYPE, "d", "next", controls.DTYPE.words, "Dtype"),
    Turn(controls.SCALER, "s", "next", controls.SCALER.words, "Scaler"),
    Turn(controls.SCALE, "right_square_bracket", "up", "Double the scale"),
    Turn(controls.SCALE, "left_square_bracket", "down", "Halve the scale"),
    Turn(controls.INJECT, "i", "press", controls.INJECT.words, "Inf"),
    Turn(controls.SPEED, "greater_than_sign", "up", "Faster"),
    Turn(controls.SPEED, "less_than_sign", "down", "Slower"),
)
TURN_BY_NAME = {turn.name: turn for turn in TURNS}
GAINS = (controls.TARGET_GAIN, controls.LOSS_GAIN)
KEEPS_UP = 0.7
"""A loop slower than this share of the speed asked for cannot go faster: it runs flat out."""


def knob_bindings() -> list[Binding]:
    return [
        Binding(
            turn.key,
            f"turn('{turn.name}')",
            turn.footer or turn.words,
            show=bool(turn.footer),
            tooltip=turn.words,
            id=f"training.{turn.name}",
        )
        for turn in TURNS
    ]


def why_not(job: Job | None) -> str | None:
    """Why no knob can be turned now, in a sentence; None when they can."""
    if job is None:
        return "This is a recording: there is no training to change."
    if job.state in ENDED:
        return "The training has ended. Press r to start it again."
    if job.state == STOPPING:
        return "The training is being stopped."
    return None


@dataclass(slots=True)
class Knobs:
    """Turns the knobs of one run."""

    controls: Controls
    asked_at: dict[str, int] = field(default_factory=dict)
    """How many steps there were when a choice was last asked for."""

    def turn(self, turn: Turn, run: Run) -> str | None:
        """Do what a key asks; returns a sentence where it can be answered here and now."""
        knob, panel = turn.knob, self.controls
        if knob is controls.SPEED:
            return self._speed(turn.way == "up", run)
        if turn.way == "next":
            panel.cycle(knob, self._current(knob, run))
            self.asked_at[knob.name] = run.steps
        elif turn.way == "neutral":
            for each in GAINS:
                if panel.value(each) != each.neutral:
                    panel.request(each, each.neutral)
        elif turn.way == "press":
            panel.request(knob)
            if knob is controls.STEP:  # one step leaves the run paused
                panel.answered(controls.PAUSE.name, True)
        else:
            panel.multiply(knob, up=turn.way == "up")
        return None

    def _current(self, knob: Knob, run: Run) -> Value:
        """The choice in force: what the last step had, unless another was asked for since."""
        if self.asked_at.get(knob.name) == run.steps or run.last is None:
            return None
        if knob is controls.DTYPE:
            return run.last.dtype
        if knob is controls.SCALER:
            return run.last.scaler
        return None

    def _speed(self, up: bool, run: Run) -> str | None:
        value = self.controls.value(controls.SPEED)
        rate = run.steps_per_second()
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            if up:
                return "The loop already runs flat out."
            if not rate:
                return "The loop has no speed yet: wait for its first steps."
            value = rate
        elif up and rate is not None and rate < value * KEEPS_UP:
            self.controls.request(controls.SPEED, None)
            return "No limit any more: the loop runs flat out."
        factor = controls.SPEED.factor or 1.0
        asked = float(f"{value * (factor if up else 1 / factor):.2g}")
        self.controls.request(controls.SPEED, max(asked, 0.1))
        return f"At most {max(asked, 0.1):g} steps a second."
