"""Runs a comparison and shows it: progress on stderr, the table and the curves on stdout."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ampwatch.compare.curves import loss_plot
from ampwatch.compare.figures import FAILED, FINISHED, IMPOSSIBLE
from ampwatch.compare.machine import measure
from ampwatch.compare.member import Member
from ampwatch.compare.race import Interrupted, Plan, Race
from ampwatch.compare.result import Result
from ampwatch.compare.table import table
from ampwatch.headless.headless import silence
from ampwatch.record import strict

PLAIN_WIDTH, MOST_COLUMNS = 120, 140
"""Columns where stdout is no terminal, and the most that read well on one."""
PLAIN_SECONDS = 5.0
TRACEBACK_LINES = 30
POLL_SECONDS = 0.02


def compare(
    name: str, members: Sequence[Member], steps: int, seed: int, *, together: bool, as_json: bool
) -> int:
    """Run all members side by side and say what came of it; the exit code.

    Args:
        name: what is compared, as the user called it.
        steps: how many each takes, at most.
    """
    plan = Plan.of(steps)
    watcher = _Watcher(members, plan)
    with _stop_signals(members) as signals:

        def tick() -> None:
            if signals:
                raise Interrupted
            watcher.show()

        try:
            Race(members, plan, tick, together=together).run()
        except Interrupted:
            pass
        finally:
            watcher.close()
            _end(members)
        runs = [member.ended() for member in members]
        device = next((run.track.device for run in runs if run.track.device), None)
        ran = not signals and device is not None and any(run.status == FINISHED for run in runs)
        machine = measure(device) if ran and device is not None else None
    result = Result(name, seed, steps, together, runs, machine)
    code = _code(result, members, signals)
    why = result.nothing_to_compare if not signals else None
    if why is not None:
        if result.rows[0].status == FAILED:  # all alike: one traceback is enough
            _last_words(members[0], why)
        _say(f"{name}: {why}")
    try:
        if as_json:
            sys.stdout.write(json.dumps(strict(result.as_json()), allow_nan=False) + "\n")
        elif why is None:
            show(result)
        sys.stdout.flush()
    except OSError:  # whoever read it has gone (``| head``)
        silence(sys.stdout)
    return code


def show(result: Result) -> None:
    """Print the table, the curves and the sentences."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every encoding has a × or a –
    console = _console()
    where = "" if result.device is None else f" on {result.device}"
    taken = max((row.steps for row in result.rows), default=0)
    asked = "" if taken >= result.steps else f" of {result.steps:,}"
    title = f"{where}, {taken:,}{asked} steps, seed {result.seed}"
    console.print(Text.assemble((result.target, "bold"), title))
    console.print()
    console.print(table(result.rows, result.verdicts, console.width))
    console.print()
    ascii_only = not (console.encoding or "").lower().startswith("utf")
    plot = loss_plot(result.runs, console.width, ascii_only=ascii_only)
    for row in plot:
        console.print(row, soft_wrap=True)
    if plot:
        console.print()
    console.print(Text(result.choice.sentence, "bold"))
    for note in result.notes():
        console.print(Text(note))


class _Console(Console):
    """One whose reader may go away: that is dealt with where the rest is written."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would make an exit code of it


def _console() -> Console:
    width = PLAIN_WIDTH
    if sys.stdout.isatty():
        width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    return _Console(width=width, highlight=False)


def _code(result: Result, members: Sequence[Member], signals: Sequence[int]) -> int:
    if signals:
        return 128 + signals[0]
    if all(row.status == IMPOSSIBLE for row in result.rows):
        return 2
    if all(member.job.exit_code == 2 for member in members):
        return 2  # there is nothing to run, or not on this device
    return 0 if any(row.status == FINISHED and row.steps for row in result.rows) else 1


def _end(members: Sequence[Member]) -> None:
    """Stop what still runs, and wait for it."""
    for member in members:
        member.stop()
    while any(member.alive for member in members):
        for member in members:
            member.take()
        time.sleep(POLL_SECONDS)
    for member in members:
        member.job.close()  # its interpreter may still be leaving


@contextlib.contextmanager
def _stop_signals(members: Sequence[Member]) -> Iterator[list[int]]:
    """While inside, Ctrl+C, SIGTERM and SIGHUP end the comparison; a second one by force."""
    got: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        got.append(number)
        if len(got) > 1:
            for member in members:
                member.job.kill()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number in numbers if before[number] != signal.SIG_IGN]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield got
    finally:
        for number in ours:
            signal.signal(number, before[number])


class _Watcher:
    """Says how far all runs are: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, members: Sequence[Member], plan: Plan) -> None:
        self._members = members
        self._total = plan.steps * len(members)
        self._due = time.monotonic() + PLAIN_SECONDS
        self._taken = -1
        console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task("starting", total=self._total)
            self._bar.start()

    def show(self) -> None:
        taken = sum(member.track.steps for member in self._members)
        left = sum(member.track.steps for member in self._members if member.alive)
        gone = self._total * sum(not m.alive for m in self._members) // len(self._members)
        words = "starting" if not taken else "comparing"
        if self._bar is not None:
            self._bar.update(self._task, completed=min(gone + left, self._total), description=words)
        elif time.monotonic() >= self._due and taken != self._taken:
            self._due = time.monotonic() + PLAIN_SECONDS
            self._taken = taken
            _say(f"{words}: {taken:,} of {self._total:,} steps")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _last_words(member: Member, why: str) -> None:
    """The end of what it has printed, unless that is the one sentence that is said anyway."""
    lines = member.job.output.tail(TRACEBACK_LINES)
    if len(lines) == 1 and why.endswith(lines[0].removeprefix("ampwatch: ")):
        return
    for line in lines:
        sys.stderr.write(line + "\n")


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"ampwatch: {sentence}\n")
        sys.stderr.flush()
