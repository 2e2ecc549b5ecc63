"""Saves what is on the screen as a picture."""

from __future__ import annotations

import re
from pathlib import Path

MOST_TRIES = 1000
_DOTTED = re.compile(r">[^<]*[\u2801-\u28ff][^<]*</text>")
BLANK_DOTS = "\u2800"


def picture_path(folder: Path, run_name: str, step: int) -> Path:
    """A name that says which run and step it shows, and that is not taken yet."""
    name = re.sub(r"[^\w.-]+", "-", run_name, flags=re.ASCII).strip("-.")[:60]
    stem = f"{name or 'ampwatch'}-step-{step}"
    for number in range(1, MOST_TRIES):
        path = folder / (f"{stem}.svg" if number == 1 else f"{stem}-{number}.svg")
        if not path.exists():
            return path
    return folder / f"{stem}.svg"


def aligned(svg: str) -> str:
    """The picture with blanks as wide as the dots beside them.

    Where a font has no braille, a viewer takes it from another one, in which it is wider than the
    blanks: curves would be bent.
    """
    return _DOTTED.sub(lambda match: match.group().replace("&#160;", BLANK_DOTS), svg)


def save_picture(svg: str, folder: Path, run_name: str, step: int) -> str:
    """Write the picture; returns the sentence that says where, or why not."""
    path = picture_path(folder, run_name, step)
    try:
        path.write_text(aligned(svg), encoding="utf-8")
    except OSError as error:
        return f"The picture could not be saved in {folder}: {error.strerror or error}"
    return f"Saved {path}"
