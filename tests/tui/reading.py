"""What a test sees of a dashboard."""

from __future__ import annotations

from typing import Any

from ampwatch.tui.app import DashboardApp
from ampwatch.tui.tab_strip import TABS


def screen_text(app: DashboardApp) -> str:
    """The whole screen as text."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    assert all(strip.cell_length <= width for strip in lines)
    assert len(lines) <= height
    return "\n".join(strip.text for strip in lines)


def messages(app: DashboardApp) -> list[str]:
    """The notifications, oldest first."""
    return [each.message for each in app._notifications]


async def frame(app: DashboardApp) -> None:
    """Take in what came and show it, without waiting for the timer."""
    app.take_frame()
    await _settled(app)


async def _settled(app: Any) -> None:
    from textual.pilot import Pilot

    await Pilot(app).pause()


def tab_key(name: str) -> str:
    """The key that opens a tab."""
    return str([tab.name for tab in TABS].index(name) + 1)
