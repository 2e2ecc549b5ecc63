"""Lessons on loss scaling: each one a file with its words, its demo and its conditions.

parts.py      what a lesson is made of
scene.py      what a lesson can ask about the run
player.py     which part is on, and when it goes on
page.py       what a learner sees of it
reader.py     turns its pages back and forth
targets.py    which keys enlarge the targets
learner.py    the keys a learner presses, for the unattended play
shelf.py      a lesson by its name, its number or its file
progress.py   which lessons are done, kept between runs

A lesson reads the run and turns knobs; it knows neither torch nor a screen. Adding one is adding
one file, and its line here.
"""

from __future__ import annotations

from ampwatch.lessons import (
    autocast,
    bfloat16,
    clipping,
    eight_bits,
    forward,
    growth,
    overflow,
    static,
    underflow,
)
from ampwatch.lessons.parts import (
    Lesson,
    Part,
    Point,
    Predict,
    Press,
    Say,
    Table,
    Wait,
)
from ampwatch.lessons.scene import Scene

__all__ = [
    "LESSONS", "Lesson", "Part", "Point", "Predict", "Press", "Say", "Scene", "Table", "Wait",
]  # fmt: skip

_TAUGHT = (
    autocast, underflow, overflow, growth, static, bfloat16, clipping, forward, eight_bits,
)  # fmt: skip
LESSONS: tuple[Lesson, ...] = tuple(module.LESSON for module in _TAUGHT)
"""In the order in which they are taught."""
