"""Lessons played once against a real training, and played again from what was recorded.

A tape is what came from the training, in the pieces in which it came, with the places at which the
learner or the lesson did something. Played again, a place is passed when that is done again: so
the same lesson sees the same run at the same moments, without torch and without waiting.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textual.keys import format_key

from ampwatch.cli.lesson_run import lesson_job
from ampwatch.controls import SPEED, Controls, Request
from ampwatch.headless.rehearsal import rehearse
from ampwatch.lessons import LESSONS, Lesson
from ampwatch.lessons.learner import Learner
from ampwatch.lessons.page import page_of
from ampwatch.lessons.player import Player
from ampwatch.output import OutputBuffer
from ampwatch.record import Record, StepRecord, from_json, to_json
from ampwatch.run import Run
from ampwatch.session import Session
from ampwatch.tui.knobs import TURNS, Knobs

LESSON = {lesson.id: lesson for lesson in LESSONS}
TURN = {format_key(turn.key): turn for turn in TURNS}
OWN_KEYS = "nNabc"
STILL = 8
MORE_STEPS = 600
"""Far more than any part of a lesson waits for."""
Change = Callable[[Record], Record | None]
Piece = str | list[Record]
"""Records that came together, or what was done: "request scaler", "key n"."""


class _Recorded:
    """A job whose records are kept as they come, and what the lesson asks of it."""

    def __init__(self, job: Any) -> None:
        self._job = job
        self.pieces: list[Piece] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    def poll(self) -> list[Record]:
        records = self._job.poll()
        if records:
            self.pieces.append(records)
        return records

    def send(self, request: Request) -> None:
        if request.knob != SPEED.name:
            self.pieces.append(f"request {request.knob}")
            self._job.send(request)


class _Noting(Player):
    """Notes the learner's own keys, and which pieces brought the lesson on."""

    def __init__(self, lesson: Lesson, controls: Controls, pieces: list[Piece]) -> None:
        super().__init__(lesson, controls)
        self.pieces = pieces
        self.telling: set[int] = set()

    def key(self, key: str) -> str | None:
        self.pieces.append(f"key {key}")
        return super().key(key)

    def _standing(self) -> tuple[object, ...]:
        return self.index, self.state, self._began, self._entered

    def advance(self, run: Run) -> None:
        before = self._standing()
        super().advance(run)
        if self._standing() != before and self.pieces:
            # The lesson's requests come behind the records that brought them about.
            last = max((n for n, p in enumerate(self.pieces) if isinstance(p, list)), default=0)
            self.telling.add(last)


def _record(lesson: Lesson) -> list[Piece]:
    job = _Recorded(lesson_job(lesson, "cpu", flat_out=True))
    controls = Controls(job.send)
    session, knobs = Session(job, controls), Knobs(controls)
    player = _Noting(lesson, controls, job.pieces)
    try:
        played = rehearse(player, session, job, lambda k: _turn(knobs, k, session.run))
    finally:
        job.kill()
        job.close()
    assert played.done, played.reason
    return list(_joined(job.pieces, player.telling))


def _joined(pieces: list[Piece], telling: set[int]) -> Iterator[Piece]:
    """Records that changed nothing for the lesson come with those after them."""
    waiting: list[Record] = []
    for number, piece in enumerate(pieces):
        if isinstance(piece, str):
            if waiting:
                yield waiting
                waiting = []
            yield piece
        else:
            waiting = waiting + piece
            if number in telling:
                yield waiting
                waiting = []
    if waiting:
        yield waiting


def _turn(knobs: Knobs, key: str, run: Run) -> None:
    knobs.turn(TURN[key], run)


def tape(name: str, folder: Path) -> list[Piece]:
    """The tape of a lesson; made once, whoever asks first."""
    file = folder / f"{name}.tape"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            pieces = _record(LESSON[name])
            lines = [p if isinstance(p, str) else [to_json(r) for r in p] for p in pieces]
            file.write_text(json.dumps(lines))
    return [
        piece if isinstance(piece, str) else [from_json(line) for line in piece]
        for piece in json.loads(file.read_text())
    ]


@dataclass
class TapeJob:
    """Plays a tape as if it were a training.

    Args:
        pieces: the tape.
        change: what is made of each record; None leaves it out.
    """

    pieces: list[Piece]
    change: Change = lambda record: record
    output: OutputBuffer = field(default_factory=OutputBuffer)
    place: int = 0
    state: str = "running"
    exit_code: int | None = None
    error: str | None = None
    waiting_for: str | None = None
    sent: list[Request] = field(default_factory=list)
    _last: StepRecord | None = None
    _extra: list[Record] = field(default_factory=list)

    def poll(self) -> list[Record]:
        extra, self._extra = self._extra, []
        if extra:
            return extra
        if self.over or isinstance(self._piece, str):
            return []
        records = self._piece
        self.place += 1
        changed = [each for record in records if (each := self.change(record)) is not None]
        self._last = next((r for r in reversed(changed) if isinstance(r, StepRecord)), self._last)
        return changed

    def skip(self) -> None:
        """Go past a place at which nothing is done."""
        self.place += 1

    def more(self, steps: int) -> None:
        """Steps like the last one."""
        if self._last is not None:
            first = self._last.step + 1
            self._extra = [self._last._replace(step=first + n) for n in range(steps)]
            self._last = self._last._replace(step=first + steps)

    def send(self, request: Request) -> None:
        self.sent.append(request)
        if request.knob != SPEED.name:
            self.done(f"request {request.knob}")

    def done(self, what: str) -> None:
        """Something was done; the tape goes on behind that place."""
        if not self.over and self._piece == what:
            self.place += 1

    @property
    def over(self) -> bool:
        return self.place >= len(self.pieces)

    @property
    def _piece(self) -> Piece:
        return self.pieces[self.place]

    def start(self) -> None: ...

    def stop(self) -> None:
        self.state = "stopped"

    def kill(self) -> None:
        self.stop()

    def restart(self) -> None: ...


@dataclass
class Replay:
    """A lesson that was played from its tape."""

    player: Player
    run: Run
    claims: list[str]
    """What the lesson said, part by part."""

    @property
    def trouble(self) -> str:
        return page_of(self.player).trouble


def replay(name: str, folder: Path, change: Change = lambda record: record) -> Replay:
    """Play a lesson from its tape to its end, or to where it stays.

    A run that ``change`` has broken goes on behind the end of its tape, with steps like the last.
    """
    job = TapeJob(tape(name, folder), change)
    controls = Controls(job.send)
    session, knobs = Session(job, controls, rules=()), Knobs(controls)
    player, learner = Player(LESSON[name], controls), Learner()
    said: list[str] = []
    still = 0
    while not player.finished and still < STILL:
        before = (job.place, player.index, player.state)
        session.pump()
        player.advance(session.run)
        said.append(player.text)
        for key in learner.keys(player):
            if key in OWN_KEYS:
                job.done(f"key {key}")
                player.key(key)
            else:
                _turn(knobs, key, session.run)
        still = 0 if (job.place, player.index, player.state) != before else still + 1
        if still and not job.over:
            job.skip()  # what was recorded there did not happen this time
            still = 0
        elif still:
            job.more(MORE_STEPS)
    return Replay(player, session.run, said)
