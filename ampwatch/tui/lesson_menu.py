"""The menu of lessons: what there is, and what is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ampwatch.lessons import Lesson
from ampwatch.lessons.progress import Progress
from ampwatch.tui.themes import DARK, THEMES

DONE, OPEN = "✓", "·"


def first_unfinished(lessons: Sequence[Lesson], progress: Progress) -> int:
    """The place of the first lesson that is not done, or of the first one."""
    places = [place for place, each in enumerate(lessons) if not progress.of(each.id).done]
    return places[0] if places else 0


def line(lesson: Lesson, progress: Progress, width: int) -> Content:
    """Number, title, how far it was taken, and under it what is learned."""
    reached = progress.of(lesson.id)
    sign = DONE if reached.done else OPEN
    return Content.assemble(
        (f" {sign} ", "$text-success" if reached.done else "$foreground-muted"),
        (f"{lesson.number}  {lesson.title:{width}}", "bold"),
        (f"{reached.words():>10}", "$text-accent"),
        (f"\n      {lesson.goal}", "$foreground-muted"),
    )


class LessonMenu(App[Lesson]):
    """Gives back the lesson that was chosen, or None."""

    TITLE = "ampwatch learn"
    CSS = """
    Screen { background: $background; color: $foreground; padding: 1 2; }
    #menu-title { text-style: bold; color: $text-primary; height: 2; }
    #menu-keys { color: $foreground-muted; height: 1; margin-top: 1; }
    OptionList { background: $background; border: none; height: 1fr; padding: 0; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,ctrl+c,ctrl+q", "leave", "Quit", priority=True)
    ]

    def __init__(self, lessons: Sequence[Lesson], progress: Progress) -> None:
        super().__init__()
        self._lessons = tuple(lessons)
        self._progress = progress
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = DARK.name

    def compose(self) -> ComposeResult:
        done = sum(self._progress.of(each.id).done for each in self._lessons)
        count = len(self._lessons)
        yield Static(f"Lessons on loss scaling: {done} of {count} done", id="menu-title")
        width = max(len(each.title) for each in self._lessons)
        options = [Option(line(each, self._progress, width), each.id) for each in self._lessons]
        yield OptionList(*options, markup=False)
        yield Static("↑ ↓ choose   ⏎ or a number begins   q quits", id="menu-keys")

    def on_mount(self) -> None:
        menu = self.query_one(OptionList)
        menu.highlighted = first_unfinished(self._lessons, self._progress)
        menu.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.exit(self._lessons[event.option_index])

    def on_key(self, event: object) -> None:
        character = getattr(event, "character", None)
        for lesson in self._lessons:
            if character == str(lesson.number):
                self.exit(lesson)

    def action_leave(self) -> None:
        self.exit(None)


def choose(lessons: Sequence[Lesson], progress: Progress) -> Lesson | None:
    """Show the menu; the lesson that was chosen, or None."""
    return LessonMenu(lessons, progress).run()
