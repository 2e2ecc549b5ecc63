"""The command palette: what the keys do, to be searched for by its words."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.command import CommandPalette
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.theme import ThemeProvider

from ampwatch.tui.keys import all_bindings

NOT_IN_PALETTE = ("command_palette", "back")


class Palette(CommandPalette):
    """Textual's palette, which must not fail in a window that has no room for its list, nor when
    it is closed twice at once."""

    def _action_command_list(self, action: str) -> None:
        with suppress(LookupError):
            super()._action_command_list(action)

    def _watch__list_visible(self) -> None:
        with suppress(NoMatches):  # a search that ends after the palette was closed
            super()._watch__list_visible()

    async def _watch__show_busy(self) -> None:
        with suppress(NoMatches):
            await super()._watch__show_busy()

    def dismiss(self, result: object = None) -> AwaitComplete:
        if self.app.screen is not self:
            return AwaitComplete()
        return super().dismiss(None)


class WithPalette(App[None]):
    """The part of the dashboard that opens palettes."""

    def action_command_palette(self) -> None:
        if not CommandPalette.is_open(self):  # type: ignore[arg-type]
            self.push_screen(Palette(id="--command-palette"))

    def search_themes(self) -> None:
        self.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        return commands(self)


def commands(app: App[None]) -> list[SystemCommand]:
    """The palette: every key's action by its words, and the choice of a theme."""
    found = []
    for binding in all_bindings():
        if isinstance(binding, Binding) and binding.action not in NOT_IN_PALETTE:
            words = binding.tooltip or binding.description
            keys = ", ".join(
                app.get_key_display(binding.with_key(key)) for key in binding.key.split(",")
            )
            run = partial(app.run_action, binding.action)
            found.append(SystemCommand(words, f"key: {keys}", run))
    found.append(SystemCommand("Theme", "Choose other colours", app.action_change_theme))
    unique = {command.title: command for command in reversed(found)}
    return [command for command in found if unique.get(command.title) is command]
