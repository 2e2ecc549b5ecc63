"""One line that says how far a run has come, rewritten on a terminal, repeated elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from ampwatch.run import Run
from ampwatch.words import number_words, power_words, rate_words, seconds_words, share_words

TERMINAL_SECONDS = 0.25
PLAIN_SECONDS = 5.0
ERASE = "\r\x1b[K"


def progress_text(run: Run, total: int | None = None) -> str:
    """Steps, rate, time left, scale, skips and loss, as far as they are known."""
    if run.last is None:
        return "no optimizer step yet"
    planned = [n for n in (total, run.info.total_steps if run.info else None) if n]
    goal = min(planned, default=None)
    parts = [f"step {run.steps:,}" + (f" of {goal:,}" if goal else "")]
    rate = run.steps_per_second()
    if rate is not None:
        parts.append(rate_words(rate))
        if goal and rate > 0 and run.end is None:
            parts.append(f"{seconds_words((goal - run.steps) / rate)} left")
    if run.last.scale is not None and run.last.scaler != "off":
        parts.append(f"scale {power_words(run.last.scale)}")
    if run.skipped or run.last.skipped is not None:
        parts.append(f"{run.skipped:,} skipped ({share_words(run.skipped, run.steps)})")
    if run.last.loss is not None:
        parts.append(f"loss {number_words(run.last.loss)}")
    return " | ".join(parts)


class Progress:
    """Shows the progress line on a stream: in place on a terminal, every few seconds elsewhere.

    It uses no colour. A terminal that cannot erase a line (TERM=dumb) counts as none.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._due = clock()
        self._drawn = False
        self._said: deque[str] = deque()
        self._steps = -1
        self.line_open = False
        """The script has begun a line and not ended it: the progress line must wait."""
        self.in_place = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def show(self, run: Run, total: int | None = None) -> None:
        """Say how far the run is, if it is time to."""
        while self._said:
            self.say(self._said.popleft())
        now = self._clock()
        if now < self._due:
            return
        self._due = now + (TERMINAL_SECONDS if self.in_place else PLAIN_SECONDS)
        text = progress_text(run, total)
        if self.in_place:
            if not self.line_open:
                width = shutil.get_terminal_size().columns
                self._write(f"{ERASE}{text[: width - 1]}")
                self._drawn = True
        elif run.steps != self._steps:
            self._steps = run.steps
            self._write(f"ampwatch: {text}\n")

    def say(self, text: str) -> None:
        """A line of its own."""
        self.clear()
        self._write(f"{text}\n")

    def later(self, text: str) -> None:
        """The same from a signal handler: said with the next :meth:`show`."""
        self._said.append(text)

    def clear(self) -> None:
        """Take the line away, for somebody else to write."""
        if self._drawn:
            self._write(ERASE)
            self._drawn = False

    def end(self) -> None:
        self.clear()
        while self._said:
            self.say(self._said.popleft())

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
