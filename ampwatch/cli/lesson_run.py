"""A lesson's training, and the lesson on top of it: with a screen, or played unattended."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import click
from textual.keys import format_key

from ampwatch import job as states
from ampwatch.cli.demo_files import demo_names, read_demo
from ampwatch.cli.target import check_target
from ampwatch.cli.train import watched
from ampwatch.controls import SPEED, Controls, Request
from ampwatch.errors import UsageError
from ampwatch.headless.rehearsal import Rehearsal, rehearse
from ampwatch.launch import ScriptJob
from ampwatch.lessons import LESSONS, Lesson
from ampwatch.lessons.player import Player
from ampwatch.lessons.progress import Progress
from ampwatch.runner.settings import Settings
from ampwatch.session import Session
from ampwatch.tui.knobs import TURNS, Knobs
from ampwatch.words import count_words

SEED = 0
"""The same for everybody, so that a class sees the same story."""


def lesson_job(lesson: Lesson, device: str | None, flat_out: bool = False) -> ScriptJob:
    """The training of a lesson, not started yet.

    Raises:
        UsageError: the lesson names neither a demo nor a script.
    """
    args = [*lesson.args, "--seed", str(SEED)]
    if device is not None:
        args += ["--device", device]
    if lesson.demo in demo_names() or lesson.folder is None:
        demo = read_demo(lesson.demo)
        rate = None if flat_out else demo.pace
        return ScriptJob(str(demo.path), args, Settings(name=demo.name, rate=rate))
    script = lesson.folder / lesson.demo
    try:
        check_target(str(script))
    except UsageError as error:
        raise UsageError(f"the lesson {lesson.id!r} has no training: {error}") from error
    return ScriptJob(str(script), list(lesson.args), Settings(name=script.stem))


def play(
    lesson: Lesson, progress: Progress, device: str | None, following: Lesson | None
) -> tuple[int, bool]:
    """Play a lesson in the dashboard: the exit code, and whether the next one is wanted."""
    from ampwatch.tui.lesson_app import LessonApp

    job = lesson_job(lesson, device)
    apps: list[LessonApp] = []

    def open_app(session: Session, controls: Controls) -> LessonApp:
        player = Player(lesson, controls)
        title = "" if following is None else f"lesson {following.number}: {following.title}"
        apps.append(LessonApp(session, controls, job, player, progress, title))
        return apps[0]

    def farewell(job: ScriptJob, session: Session) -> None:
        for line in job.output.tail(20) if job.state == states.FAILED else ():
            click.echo(line, err=True)
        if apps and not apps[0].wants_next:
            click.echo(f"ampwatch: {left_words(apps[0].player)}", err=True)

    code = watched(job, open_app, farewell)
    if job.state == states.STOPPED:
        code = 0  # a lesson is left, not broken off
    return code, bool(apps) and apps[0].wants_next


def left_words(player: Player) -> str:
    """How far somebody came, in a sentence."""
    lesson = player.lesson
    if player.done:
        return f"the lesson {lesson.title!r} is done"
    return f"the lesson {lesson.title!r} was left at part {player.index + 1} of {len(lesson.parts)}"


AT_ONCE = 2
"""Each lesson's process takes one core, and starting it takes longer than the lesson."""


def check_lessons(lessons: Sequence[Lesson] = LESSONS, device: str | None = None) -> int:
    """Play lessons unattended, flat out, one line each; 1 where one does not come to its end."""
    jobs = [lesson_job(lesson, device, flat_out=True) for lesson in lessons]
    width = max(len(lesson.id) for lesson in lessons)
    failed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        plays = [pool.submit(_played, *each) for each in zip(lessons, jobs, strict=True)]
        try:
            for lesson, job, play in zip(lessons, jobs, plays, strict=True):
                played = play.result()
                failed += not played.done
                word = "ok" if played.done else "FAILED"
                parts = f"{played.parts} of {len(lesson.parts)} parts"
                line = f"{lesson.number or '':>2}  {lesson.id:{width}}  {word:6}  {parts}"
                line += f", {count_words(played.steps, 'step')}, {played.seconds:.1f} s"
                click.echo(line if played.done else f"{line}: {played.reason}")
                for printed in () if played.done else job.output.tail(1):
                    click.echo(f"    {printed}", err=True)
        except BaseException:
            for each in plays:
                each.cancel()
            for job in jobs:
                job.kill()  # the lessons that run find that their training has ended
            raise
    return 1 if failed else 0


def _played(lesson: Lesson, job: ScriptJob) -> Rehearsal:
    """One lesson by its own keys, as they would be pressed in the dashboard."""

    def send(request: Request) -> None:
        if request.knob != SPEED.name:  # nobody has to follow with their eyes
            job.send(request)

    controls = Controls(send)
    session, knobs = Session(job, controls), Knobs(controls)
    turns = {format_key(turn.key): turn for turn in TURNS}

    def press(key: str) -> None:
        knobs.turn(turns[key], session.run)

    try:
        return rehearse(Player(lesson, controls), session, job, press)
    finally:
        job.kill()
        job.close()
