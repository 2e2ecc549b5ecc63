"""The lesson beside the plots, or below them where there is no room beside."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.events import Resize
from textual.widgets import Static

from ampwatch.lessons.page import Page
from ampwatch.tui.lesson_page import body, prompt, table_content

BESIDE = 116
"""Columns from which the lesson stands beside the plots."""
BACK = Binding("backspace", "", "")
BOTH = ("loss", "scale")
"""The plots that are shown where there is room for two and a part names none."""


class LessonPanel(Container):
    """What a lesson says and asks."""

    def __init__(self) -> None:
        super().__init__(id="lesson")
        self._body = Static(id="lesson-body", markup=False)
        self._prompt = Static(id="lesson-prompt", markup=False)
        self._scroll = VerticalScroll(self._body, id="lesson-scroll", can_focus=False)

    def compose(self) -> ComposeResult:
        yield self._scroll
        yield self._prompt

    def show(self, page: Page, title: str, beside: bool) -> None:
        part = f"part {min(page.part, page.parts)} of {page.parts}" + " again" * page.again
        if page.part > 1:
            part += f" · {self.app.get_key_display(BACK)} back"
        self.border_title = title if beside else f"{title} · {part}"
        self.border_subtitle = part if beside else ""
        self._body.update(body(page))
        self._prompt.update(prompt(page, beside))

    def turn(self, way: int) -> None:
        """A text that is longer than the panel, up or down."""
        self._scroll.scroll_relative(y=way * max(1, self._scroll.size.height - 1), animate=False)

    def top(self) -> None:
        """A new page is read from its beginning."""
        self._scroll.scroll_home(animate=False)


class LessonStage(Container):
    """The tabs of the dashboard and a lesson; the dashboard's own come in through ``with``."""

    def __init__(self) -> None:
        super().__init__(id="stage", classes="-lesson")
        self.panel = LessonPanel()
        self.table = Static(id="lesson-table-rows", markup=False)
        self._shown: tuple[Page, str, bool] | None = None

    def compose(self) -> ComposeResult:
        yield VerticalScroll(self.table, id="lesson-table", can_focus=False)
        yield self.panel

    @property
    def beside(self) -> bool:
        return self.size.width >= BESIDE

    def show(self, page: Page, title: str) -> None:
        """Show a page; nothing is laid out anew if it is the one on screen."""
        shown = (page, title, self.beside)
        if shown == self._shown:
            return
        before = self._shown
        self._shown = shown
        self.set_class(self.beside, "-beside")
        self.set_class(not self.beside, "-below")
        self.screen.set_class(not self.beside, "-lesson-below")
        self.set_class(page.table is not None, "-table")
        self.set_class(len(self.looked(page)) == 1, "-single")
        if page.table is not None:
            self.table.update(table_content(page.table))
        self.panel.show(page, title, self.beside)
        if before is None or before[0].part != page.part:
            self.panel.top()

    @staticmethod
    def looked(page: Page) -> tuple[str, ...]:
        """The plots that are seen where there is no room for all."""
        return page.look[:2] or BOTH

    def on_resize(self, event: Resize) -> None:
        if self._shown is not None:
            self.show(*self._shown[:2])
