"""Which page is before the learner: the one that is on, or an earlier one, read again."""

from __future__ import annotations

from dataclasses import replace

from ampwatch.lessons.page import Page, page_of
from ampwatch.lessons.player import NEXT, Player


class Reader:
    """Turns the pages of a lesson back and forth.

    An earlier page is shown as it stood when it was left. Reading it again undoes nothing, and
    the lesson goes on meanwhile.
    """

    def __init__(self, player: Player) -> None:
        self._player = player
        self._pages: dict[int, Page] = {}
        """Each part that was seen, by its number."""
        self._at: int | None = None
        """The part that is read again."""

    @property
    def again(self) -> bool:
        """Whether an earlier page is open."""
        return self._at is not None

    def page(self) -> Page:
        """The open page; asked for whenever the lesson may have moved, so that none is missed."""
        now = page_of(self._player)
        if now.part < max(self._pages, default=0):
            self._pages.clear()  # the lesson has begun anew
        self._pages[now.part] = now
        if self._at not in self._pages or self._at == now.part:
            self._at = None
        if self._at is None:
            return now
        return replace(self._pages[self._at], trouble="", keys=(NEXT,), ask="goes on", again=True)

    def back(self) -> str | None:
        """Open the page before; returns a sentence where there is none."""
        open_part = self.page().part
        before = [part for part in self._pages if part < open_part]
        if not before:
            return "This is the first part."
        self._at = max(before)
        return None

    def forward(self) -> None:
        """From an earlier page to the one after it."""
        assert self._at is not None
        self._at = min(part for part in self._pages if part > self._at)
