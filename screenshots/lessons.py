"""The main moment of each lesson; make.py makes these pictures with the others."""

from __future__ import annotations

from collections.abc import Callable

from textual.keys import _character_to_key

from ampwatch.cli.lesson_run import lesson_job
from ampwatch.controls import PAUSE, SPEED, Controls, Request
from ampwatch.launch import ScriptJob
from ampwatch.lessons import LESSONS
from ampwatch.lessons.learner import Learner
from ampwatch.lessons.player import Player
from ampwatch.lessons.progress import Progress
from ampwatch.session import Session
from ampwatch.tui.lesson_app import LessonApp

RATE = 80.0
PATIENCE = 120.0
WIDE, PROJECTOR = (120, 36), (100, 30)
MOMENTS = (
    ("autocast", 4, WIDE, "lesson-1-autocast"),
    ("underflow", 7, WIDE, "lesson-2-underflow"),
    ("overflow", 5, WIDE, "lesson-3-overflow"),
    ("overflow", 7, PROJECTOR, "lesson-3-projector"),
    ("growth", 8, WIDE, "lesson-4-growth"),
    ("static", 11, WIDE, "lesson-5-static"),
    ("bfloat16", 8, WIDE, "lesson-6-bfloat16"),
    ("clipping", 6, WIDE, "lesson-7-clipping"),
    ("forward", 5, WIDE, "lesson-8-forward"),
    ("eight_bits", 5, WIDE, "lesson-9-eight-bits"),
)
"""Lesson, part, size of the terminal, name of the picture."""


async def lessons(save: Callable[[LessonApp, str], None]) -> None:
    """Play each lesson up to its moment, and have it saved."""
    for name, part, size, picture in MOMENTS:
        lesson = next(each for each in LESSONS if each.id == name)
        job = lesson_job(lesson, "cpu", flat_out=True)

        def send(request: Request, job: ScriptJob = job) -> None:
            if request.knob != SPEED.name or request.value == RATE:
                job.send(request)

        controls = Controls(send)
        session = Session(job, controls)
        player = Player(lesson, controls)
        app = LessonApp(session, controls, job, player, Progress())
        learner = Learner()
        job.start()
        controls.request(SPEED, RATE)
        waited = 0.0
        try:
            async with app.run_test(size=size) as pilot:
                while player.index + 1 != part or player.state != "reading":
                    for key in learner.keys(player):
                        choice = "b" if key == "a" else key
                        await pilot.press("space" if key == "space" else _character_to_key(choice))
                    await pilot.pause(0.05)
                    waited += 0.05
                    if waited > PATIENCE or player.index + 1 > part:
                        raise TimeoutError(f"part {part} of {name} did not come")
                controls.request(PAUSE, True)
                await pilot.pause(1.0)
                app.take_frame()
                await pilot.pause(0.5)
                save(app, picture)
        finally:
            job.kill()
            job.close()
