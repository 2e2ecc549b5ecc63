"""Runs that are made up step by step, and a lesson's parts on top of them."""

from __future__ import annotations

from typing import Any

from ampwatch.controls import Controls, Request
from ampwatch.lessons import Lesson, Part
from ampwatch.lessons.page import Page, page_of
from ampwatch.lessons.player import Player
from ampwatch.record import RunInfo, ScalerInfo, StepRecord
from ampwatch.run import Run

INFO = RunInfo("toy", 1.0, device="cpu", scaler=ScalerInfo("dynamic", 65536.0, 2.0, 0.5, 40))


class Class:
    """A run, and a learner before a lesson on it."""

    def __init__(self, *parts: Part) -> None:
        self.requests: list[Request] = []
        self.controls = Controls(self.requests.append)
        self.player = Player(lesson(*parts), self.controls)
        self.begin()

    def begin(self) -> None:
        """A new run."""
        self.run = Run()
        self.run.add(INFO)
        self.step = 0

    def train(self, count: int = 1, **fields: Any) -> Page:
        """Take steps, and show them to the lesson one by one."""
        for _ in range(count):
            record = StepRecord(
                self.step,
                self.step / 20,
                loss=1.0,
                scale=1024.0,
                growth_tracker=self.step % 40,
                skipped=False,
                grad_norm=1.0,
                dtype="float16",
                scaler="dynamic",
                target_gain=1.0,
            )
            self.run.add(record._replace(**fields))
            self.step += 1
            self.player.advance(self.run)
        return self.page

    def press(self, key: str) -> str | None:
        return self.player.key(key)

    @property
    def page(self) -> Page:
        return page_of(self.player)


def lesson(*parts: Part, **fields: Any) -> Lesson:
    known: dict[str, Any] = {
        "id": "toy",
        "title": "Toy",
        "goal": "Nothing.",
        "demo": "linear",
        "sources": (),
    }
    return Lesson(**{**known, **fields}, parts=parts)
