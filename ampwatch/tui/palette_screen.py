"""Textual's command palette, held up in windows of any size."""

from __future__ import annotations

from contextlib import suppress

from textual.app import App
from textual.command import CommandPalette
from textual.theme import ThemeProvider


class Palette(CommandPalette):
    """Textual's palette, which must not fail in a window that has no room for its list."""

    def _action_command_list(self, action: str) -> None:
        with suppress(LookupError):
            super()._action_command_list(action)


def open_commands(app: App[None]) -> None:
    """Offer every command of the app."""
    if not CommandPalette.is_open(app):  # type: ignore[arg-type]
        app.push_screen(Palette(id="--command-palette"))


def open_themes(app: App[None]) -> None:
    """Offer every theme."""
    app.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))
