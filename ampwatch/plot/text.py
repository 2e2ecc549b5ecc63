"""Foreign text in cells: nothing that moves the cursor, and exactly as wide as it has to be."""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len, set_cell_size


def plain(text: str, ascii_only: bool = False) -> str:
    """The text on one line, without control and zero-width format characters."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_shown, text))
        if ascii_only:
            text = text.encode("ascii", "replace").decode()
    return text


def _shown(character: str) -> str:
    kind = unicodedata.category(character)
    if kind[0] == "Z" or character in "\t\n\r\v\f":
        return " "
    # Terminals disagree about the width of what a variation selector follows.
    if kind[0] == "C" or "\ufe00" <= character <= "\ufe0f":
        return ""
    return character


def cut(text: str, width: int, ascii_only: bool = False) -> str:
    """The text, or its beginning and an ellipsis, in at most ``width`` cells."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    return set_cell_size(text, width - 1) + ("." if ascii_only else "…")


def pad(text: str, width: int, ascii_only: bool = False) -> str:
    """The text in exactly ``width`` cells."""
    short = cut(text, width, ascii_only)
    return short + " " * (width - cell_len(short))
