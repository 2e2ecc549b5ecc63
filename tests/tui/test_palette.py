"""The palette while it is being closed: its searches go on for a moment."""

from __future__ import annotations

from ampwatch.tui.main_screen import MainScreen
from ampwatch.tui.palette import Palette
from tests.tui.fakes import FakeJob, dashboard


async def test_closing_it_twice_at_once_closes_nothing_else() -> None:
    app = dashboard(FakeJob())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p")
        palette = app.screen
        assert isinstance(palette, Palette)
        palette.dismiss()
        palette.dismiss()
        await pilot.pause()
        assert isinstance(app.screen, MainScreen)


async def test_a_search_that_ends_after_it_was_closed_does_no_harm() -> None:
    app = dashboard(FakeJob())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p")
        palette = app.screen
        assert isinstance(palette, Palette)
        palette.dismiss()
        await pilot.pause()
        palette._list_visible = not palette._list_visible
        await pilot.pause()
        assert app._exception is None
