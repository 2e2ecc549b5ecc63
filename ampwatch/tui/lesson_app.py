"""The dashboard with a lesson: its keys, its panel and the learner's progress."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType

from ampwatch.controls import Controls
from ampwatch.job import Job
from ampwatch.lessons.page import Page
from ampwatch.lessons.parts import CHOICES
from ampwatch.lessons.player import ASKING, LEAVE_OUT, NEXT, Player
from ampwatch.lessons.progress import Progress
from ampwatch.lessons.reader import Reader
from ampwatch.session import Session
from ampwatch.tui.app import DashboardApp
from ampwatch.tui.lesson_panel import LessonStage
from ampwatch.tui.main_screen import MainScreen

SCROLL = "Read on where a text is longer than its panel"
WINDOW = 1000
LESSON_KEYS: tuple[BindingType, ...] = (
    Binding(NEXT, f"lesson('{NEXT}')", "Go on", show=False, tooltip="Go on", id="lesson.next"),
    Binding(
        LEAVE_OUT,
        f"lesson('{LEAVE_OUT}')",
        "Leave out",
        show=False,
        tooltip="Leave a part out",
        id="lesson.leave_out",
    ),
    Binding(
        "backspace",
        "lesson_back",
        "Back",
        show=False,
        tooltip="Read the part before again; nothing is undone",
        id="lesson.back",
    ),
    *(
        Binding(key, f"lesson_scroll({way})", show=False, tooltip=SCROLL, id=f"lesson.{key}")
        for key, way in (("pageup", -1), ("pagedown", 1))
    ),
    *(
        # A tab may have the same key for something else: it is the lesson's while it asks.
        Binding(
            key,
            f"choose('{key}')",
            key,
            show=False,
            priority=True,
            tooltip="Answer a question",
            id=f"lesson.{key}",
        )
        for key in CHOICES
    ),
)


class LessonApp(DashboardApp):
    """Plays one lesson on a session.

    Args:
        player: the lesson; ``controls`` are its own as well.
        progress: where it is noted how far somebody came.
        following: the title of the lesson that comes next, if there is one.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*LESSON_KEYS]

    def __init__(
        self,
        session: Session,
        controls: Controls,
        job: Job,
        player: Player,
        progress: Progress,
        following: str = "",
    ) -> None:
        self.stage = LessonStage()
        super().__init__(session, controls, job, name=player.lesson.demo, stage=self.stage)
        self.player = player
        self.reader = Reader(player)
        self.wants_next = False
        """The learner asked for the lesson after this one."""
        self._progress = progress
        self._following = following
        self.look.window = WINDOW  # a run that was left alone for minutes can still be read
        self._page: Page | None = None

    def on_mount(self) -> None:
        self._main.add_class("-lesson")

    def take_frame(self) -> None:
        super().take_frame()
        self._follow()

    def action_lesson(self, key: str) -> None:
        if self.reader.again:
            self.reader.forward()
            self._follow()
            return
        if self.player.finished:
            if key == NEXT:
                self.wants_next = bool(self._following)
                self.action_leave()
            return
        answer = self.player.key(key)
        if answer:
            self._say(answer)
        self._follow()

    def action_choose(self, key: str) -> None:
        self.action_lesson(key)

    def action_lesson_back(self) -> None:
        answer = self.reader.back()
        if answer:
            self._say(answer)
        self._follow()

    def action_lesson_scroll(self, way: int) -> None:
        self.stage.panel.turn(way)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "choose":
            asks = self.player.state == ASKING and not self.reader.again
            return asks and isinstance(self.screen, MainScreen)
        return super().check_action(action, parameters)

    def action_turn(self, name: str) -> None:
        super().action_turn(name)
        self._follow()

    def _follow(self) -> None:
        """Bring the lesson up to date with the run, and the screen with the lesson."""
        player, lesson = self.player, self.player.lesson
        player.advance(self.session.run)
        page = self.reader.page()
        before, self._page = self._page, page
        if before is None or before.part != page.part:
            self._progress.note(lesson.id, page.part, page.parts, player.done)
            if page.tab != self._main.tab:
                self._main.open_tab(page.tab)
        if before is None or (before.look, before.step) != (page.look, page.step):
            self._point(page)
        number = f"Lesson {lesson.number}: " if lesson.number else ""
        if player.finished and not page.again:
            page = _with_end(page, self._following)
        if self._main.tab != page.tab:
            page = replace(page, table=None)  # it stands in the place of the tab it belongs to
        self.stage.set_class(self.explaining.open, "-explaining")
        self.stage.show(page, f"{number}{lesson.title}")

    def _point(self, page: Page) -> None:
        """Mark the plots, and the step, that a part speaks of."""
        overview = self._main.overview
        looked = self.stage.looked(page)
        for name, plot in overview.plots.items():
            plot.set_class(name in looked, "-looked")
            plot.set_class(name in page.look, "-pointed")
        self.look.pointer = page.step
        if self.session.run.steps:
            overview.sync(self.session.run, self.look)


def _with_end(page: Page, following: str) -> Page:
    if following:
        return replace(page, keys=(NEXT,), ask=f"goes on with {following}; q leaves")
    return replace(page, keys=(NEXT,), ask="leaves")
