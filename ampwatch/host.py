"""Where a watched loop's records go, and where it waits, goes on or stops: at step boundaries.

Outside a dashboard a host has no screen and no knobs: it only writes the log, if one is named.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import select
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ampwatch import __version__, controls
from ampwatch.controls import Request
from ampwatch.feed import Feed
from ampwatch.record import Notice, Record, RunEnd, RunInfo, StepRecord, to_json

if TYPE_CHECKING:
    from ampwatch.log import LogWriter

REQUEST_BYTES = 65536


class StopTraining(KeyboardInterrupt):
    """Raised in the loop at a step boundary; scripts that save on Ctrl+C save on this too."""


class Host:
    """The world outside a loop.

    Args:
        feed: the way to a screen, if there is one.
        requests: file number on which a screen asks for knobs to be turned.
        log: where records are kept, if anywhere.
        steps: stop after this many steps.
        rate: steps a second to hold back to.
        name: what the run is called.
        initial: knobs that are turned before the first step.
        measures_memory: steps after a pause tell what they keep in memory.
    """

    def __init__(
        self,
        feed: Feed | None = None,
        requests: int | None = None,
        log: LogWriter | None = None,
        steps: int | None = None,
        rate: float | None = None,
        name: str | None = None,
        initial: Sequence[Request] = (),
        measures_memory: bool = False,
    ) -> None:
        self._feed = feed
        self._requests = requests
        self._log = log
        self._unread = b""
        self._steps = steps
        self._rate = rate
        self._due = 0.0
        self._paused = False
        self._granted = 0
        """Steps that may still be taken although the loop is paused."""
        self._counted = False
        self._block_begun: float | None = None
        self._pid = os.getpid()
        self._closed = False
        self.initial = tuple(initial)
        self.info = RunInfo(
            name=name or os.path.basename(sys.argv[0] if sys.argv else "") or "python",
            started=time.time(),
            argv=tuple(sys.argv),
            ampwatch=__version__,
            python=platform.python_version(),
        )
        self.started = time.monotonic()
        self.waited = 0.0
        """Seconds the loop was held back by pausing and pacing; no part of its own step time."""
        self.resumed = False
        """Whether the loop has been let go on after a pause, and not come to a boundary since."""
        self.measures_memory = measures_memory
        self.stopped_by: str | None = None
        """"user" or "steps" once the loop was told to stop."""
        self.last_step = -1
        if requests is not None:
            os.set_blocking(requests, False)

    @property
    def watched(self) -> bool:
        """Whether somebody looks on who can turn knobs."""
        return self._requests is not None

    def time(self) -> float:
        """Seconds since the run started."""
        return time.monotonic() - self.started

    def put(self, record: Record) -> None:
        """Hand a record on; a forked copy of the process hands on nothing."""
        if self._closed or os.getpid() != self._pid:
            return
        keep = True
        if isinstance(record, StepRecord):
            self.reached(record.step)
            keep = bool(record.skipped)
        line = None
        if self._feed is not None:
            line = to_json(record)
            self._feed.put(line, keep=keep)
        if self._log is not None:
            self._log.put(record, line)

    def reached(self, step: int) -> None:
        """This step has been taken; its record may come later, from a device."""
        self.last_step = max(self.last_step, step)

    def describe(self, **known: Any) -> None:
        """Add to what is known about the run, and tell it."""
        self.info = dataclasses.replace(self.info, **known)
        self.put(self.info)

    def say(self, text: str) -> None:
        """A sentence for whoever looks on; on stderr when nobody does."""
        if self._feed is not None:
            self.put(Notice(text))
        elif os.getpid() == self._pid:
            with contextlib.suppress(OSError, ValueError):
                print(f"ampwatch: {text}", file=sys.stderr)  # noqa: T201

    def close(self, status: str, error: str | None = None) -> None:
        """Write the end of the run, once."""
        if self._closed or os.getpid() != self._pid:
            return
        self.put(RunEnd(status, self.last_step + 1, error))
        self._closed = True
        if self._log is not None:
            self._log.close()
        if self._feed is not None:
            if self._feed.thinned:
                thinned = f"{self._feed.thinned} steps were not sent to the screen: it was too slow"
                self._feed.put(to_json(Notice(thinned)), keep=True)
            self._feed.close()

    def boundary(
        self,
        turn: Callable[[Request], Notice | None],
        settle: Callable[[], None] | None = None,
    ) -> None:
        """Between two steps: turn what was asked to be turned, wait while paused, keep the pace.

        Args:
            turn: called with each request that is not about waiting; its answer is handed on.
            settle: called before the loop waits for a person: what is still on a device can be
                waited for as well.

        Raises:
            StopTraining: the loop was asked to stop, or has taken the steps it was to take.
        """
        if os.getpid() != self._pid:
            return
        if self._steps is not None and self.last_step + 1 >= self._steps:
            self.stopped_by = self.stopped_by or "steps"
            raise StopTraining
        self.resumed = False
        if self._requests is not None:
            self._listen(0.0, turn)
        if self._paused or self._rate:
            begun = time.monotonic()
            try:
                self._hold(begun, turn, settle)
            finally:
                self.waited += time.monotonic() - begun
        elif self.stopped_by:
            raise StopTraining

    def _hold(
        self,
        begun: float,
        turn: Callable[[Request], Notice | None],
        settle: Callable[[], None] | None,
    ) -> None:
        if self._feed is not None:
            self._feed.flush()
        while True:
            if self.stopped_by:
                raise StopTraining
            if self._granted:
                self._granted -= 1
                if self._counted and self._block_begun is None:
                    self._block_begun = time.monotonic()
                return
            if self._paused:
                if settle is not None:
                    settle()
                self._tell_block()
                if self._log is not None:
                    self._log.flush()  # nobody knows for how long
                self._listen(None, turn)
                self.resumed = True
                continue
            now = time.monotonic()
            gap = 1.0 / self._rate if self._rate else 0.0
            self._due = max(self._due, begun - gap)  # no catching up after a long step
            left = self._due + gap - now
            if left <= 0:
                self._due += gap
                return
            self._listen(left, turn)

    def _tell_block(self) -> None:
        """The steps that were asked for by number are done: say how many seconds they took."""
        if self._block_begun is not None:
            seconds, self._block_begun = time.monotonic() - self._block_begun, None
            self._counted = False
            self.put(Notice("", controls.STEP.name, seconds))

    def _listen(self, timeout: float | None, turn: Callable[[Request], Notice | None]) -> None:
        """Wait for requests and deal with them; the screen going away is a request to stop."""
        if self._requests is None:
            time.sleep(timeout or 0.0)
            return
        try:
            ready, _, _ = select.select([self._requests], [], [], timeout)
            if not ready:
                return
            data = os.read(self._requests, REQUEST_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.stopped_by = "user"
            self._requests = None
            self._paused = False
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._take(Request.from_json(line.decode()), turn)

    def _take(self, request: Request, turn: Callable[[Request], Notice | None]) -> None:
        if request.knob == controls.STOP.name:
            self.stopped_by = "user"
            self.put(Notice("", controls.STOP.name, True))
        elif request.knob == controls.PAUSE.name:
            self._paused = bool(request.value)
            self._granted, self._counted, self._block_begun = 0, False, None
        elif request.knob == controls.STEP.name:
            self._paused = True
            count = request.value
            self._counted = isinstance(count, int)
            self._granted = max(1, count) if isinstance(count, int) else 1
        elif request.knob == controls.SPEED.name:
            rate = request.value
            self._rate = float(rate) if isinstance(rate, (int, float)) and rate > 0 else None
        else:
            answer = turn(request)
            if answer is not None:
                self.put(answer)


def outside(log: str | None, name: str | None) -> Host:
    """A host for a loop that nobody but its log looks at.

    Raises:
        LogError: the log cannot be written.
    """
    host = Host(name=name)
    if log:
        from ampwatch.log import LogWriter, rank_path

        rank = int(os.environ.get("RANK", "0"))
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
        host._log = LogWriter(rank_path(log, rank, ranks), host.say)
        host.put(host.info)
    return host


_current: Host | None = None


def install(host: Host | None) -> None:
    """Make ``host`` the one that hooks of this process report to."""
    global _current
    _current = host


def current() -> Host | None:
    """The host this process was started under, if any."""
    return _current
