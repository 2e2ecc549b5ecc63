"""`ampwatch learn`: short live lessons in the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ampwatch.cli.options import device_type
from ampwatch.errors import UsageError

if TYPE_CHECKING:
    from ampwatch.lessons import Lesson
    from ampwatch.lessons.progress import Progress


@click.command(name="learn")
@click.argument("asked", required=False, metavar="[NUMBER|NAME|FILE.py]")
@click.option("--list", "list_lessons", is_flag=True, help="Say what lessons there are.")
@click.option("--check", is_flag=True, help="Play them unattended; fail where one gets stuck.")
@click.option("--device", type=device_type, metavar="NAME", help="cpu, cuda, cuda:1, mps, ...")
def command(asked: str | None, list_lessons: bool, check: bool, device: str | None) -> int:
    """Learn loss scaling on small live trainings.

    A panel in the dashboard says what is going on, asks what you expect, asks for a key, and
    points at what happened in this very run. Without an argument: a menu. FILE.py is a lesson of
    your own.
    """
    from ampwatch.lessons import LESSONS
    from ampwatch.lessons.progress import Progress
    from ampwatch.lessons.shelf import find

    if list_lessons and check:
        raise UsageError("--list and --check are two different things; ask for one of them")
    chosen = None if asked is None else find(asked, LESSONS)
    progress = Progress.load()
    if list_lessons:
        for line in listed((chosen,) if chosen else LESSONS, progress):
            click.echo(line)
        return 0
    if check:
        from ampwatch.cli.lesson_run import check_lessons

        return check_lessons((chosen,) if chosen else LESSONS, device)
    return _learn(chosen, progress, device)


def listed(lessons: tuple[Lesson, ...], progress: Progress) -> list[str]:
    """One line a lesson: number, name, how far it was taken, and its title."""
    width = max(len(lesson.id) for lesson in lessons)
    lines = []
    for lesson in lessons:
        number = str(lesson.number or "")
        stand = progress.of(lesson.id).words()
        lines.append(f"{number:>2}  {lesson.id:{width}}  {stand:>10}  {lesson.title}")
    return lines


def _learn(lesson: Lesson | None, progress: Progress, device: str | None) -> int:
    """One lesson after the other, until somebody has enough; the exit code."""
    from ampwatch.cli.terminal import require_terminal

    require_terminal("`ampwatch learn --check` plays the lessons without one")
    from ampwatch.cli.lesson_run import play
    from ampwatch.lessons import LESSONS

    if lesson is None:
        from ampwatch.tui.lesson_menu import choose

        lesson = choose(LESSONS, progress)
    code = 0
    while lesson is not None:
        after = following(lesson, LESSONS)
        code, wants_next = play(lesson, progress, device, after)
        lesson = after if wants_next else None
    return code


def following(lesson: Lesson, lessons: tuple[Lesson, ...]) -> Lesson | None:
    """The lesson after this one; None after the last one and after one of your own."""
    place = lessons.index(lesson) + 1 if lesson in lessons else len(lessons)
    return lessons[place] if place < len(lessons) else None
