"""Joins the wings: a script in its process, and a screen or none in front of it."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from ampwatch import job as states
from ampwatch.cli.fail_on import fail_code
from ampwatch.cli.options import Options
from ampwatch.cli.terminal import require_terminal
from ampwatch.controls import Controls
from ampwatch.launch import ScriptJob
from ampwatch.runner.settings import Settings

if TYPE_CHECKING:
    from ampwatch.session import Session
    from ampwatch.tui.app import DashboardApp

STOPPED_BY_SIGNAL = 128
TRACEBACK_LINES = 30
FAREWELL_FINDINGS = 3
_TRACEBACK = "Traceback (most recent call last):"


def train(target: str, args: list[str], settings: Settings, options: Options) -> int:
    """Run a script under the dashboard, or without a screen; the exit code."""
    if not options.headless:
        require_terminal("add --headless to do without it")
    job = ScriptJob(target, args, settings)
    if not options.headless:
        return watched(job, _open_dashboard, _farewell)
    with _ended_with_us(job):
        return _headless(job, options)


def watched(
    job: ScriptJob,
    open_app: Callable[[Session, Controls], DashboardApp],
    farewell: Callable[[ScriptJob, Session], None],
) -> int:
    """Run a job under the dashboard that ``open_app`` makes; the exit code.

    Args:
        farewell: says what stays on the terminal when the screen has gone.
    """
    with _ended_with_us(job):
        return _dashboard(job, open_app, farewell)


@contextlib.contextmanager
def _ended_with_us(job: ScriptJob) -> Iterator[None]:
    """However we leave, the script does not stay behind."""
    try:
        with _hangups_end_us():
            yield
    finally:
        if job.state not in states.ENDED:
            job.kill()
        job.close()


def _headless(job: ScriptJob, options: Options) -> int:
    from ampwatch.headless import run_headless
    from ampwatch.session import Session

    session = Session(job, Controls(job.send))
    code = run_headless(job, session, json_output=options.json_output, total=options.steps)
    if code > STOPPED_BY_SIGNAL and job.state == states.STOPPED:
        return code  # whoever stopped it did not wait for an answer
    return fail_code(session.findings, options.fail_on) or code


def _dashboard(
    job: ScriptJob,
    open_app: Callable[[Session, Controls], DashboardApp],
    farewell: Callable[[ScriptJob, Session], None],
) -> int:
    # The script's process starts up, on another core, while Textual is imported.
    job.start()
    from ampwatch.session import Session

    controls = Controls(job.send)
    session = Session(job, controls)
    app = open_app(session, controls)
    app.run()
    code = app.return_code or 0
    with _hangups_end_us():  # the application had handlers of its own
        if not _wait_for_end(job, session):
            code = code or 130
    with contextlib.suppress(OSError, ValueError):  # the terminal may have gone
        farewell(job, session)
    return code or job.exit_code or 0


def _open_dashboard(session: Session, controls: Controls) -> DashboardApp:
    from ampwatch.tui.app import DashboardApp

    job = session.source
    assert isinstance(job, ScriptJob)
    return DashboardApp(session, controls, job, name=job.settings.name)


def _wait_for_end(job: ScriptJob, session: Session) -> bool:
    """Let a script that was told to stop finish what it does; False when it was cut short."""
    job.stop()
    told = time.monotonic() + 0.5
    try:
        while job.state not in states.ENDED:
            session.pump()
            if told and time.monotonic() > told and job.waiting_for:
                told = 0.0
                _say(f"{job.waiting_for} Ctrl+C ends it at once.")
            time.sleep(0.01)
    except KeyboardInterrupt:
        job.kill()
        job.close()
        return False
    session.pump()
    return True


def _farewell(job: ScriptJob, session: Session) -> None:
    """What stays on the terminal when the screen has gone."""
    from ampwatch.rules.telling import troubles

    run = session.run
    if job.state == states.FAILED:
        for line in _traceback(job.output.tail(TRACEBACK_LINES * 3)):
            click.echo(line, err=True)
    bad = troubles(session.findings)
    for finding in bad[:FAREWELL_FINDINGS]:
        _say(f"{finding.severity} {finding.rule}: {finding.message}")
    if bad:
        _say(f"ampwatch rules {bad[0].rule} explains it and says what to do")
    words = {states.FAILED: "failed", states.STOPPED: "stopped"}.get(job.state, "finished")
    steps = f"{run.steps:,} step" + "s" * (run.steps != 1)
    skipped = f", {run.skipped:,} skipped" if run.skipped else ""
    why = f": {job.error}" if job.error else ""
    _say(f"{job.settings.name} {words} after {steps}{skipped}{why}")
    if job.settings.log is not None:
        _say(f"the log is {job.settings.log}")


def _traceback(lines: list[str]) -> list[str]:
    """The last traceback among the lines, or their end."""
    starts = [index for index, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    lines = lines[starts[-1] :] if starts else lines
    return lines[-TRACEBACK_LINES:]


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"ampwatch: {sentence}", err=True)


@contextlib.contextmanager
def _hangups_end_us() -> Iterator[None]:
    """While inside, a hang-up or SIGTERM unwinds the stack, so that the script is stopped too.

    Whoever ignores them (nohup) goes on ignoring them.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    ours = [number for number, handler in before.items() if handler == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
