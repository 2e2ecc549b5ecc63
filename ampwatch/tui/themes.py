"""Two calm themes of our own; every theme that Textual ships works as well."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="ampwatch-dark",
    primary="#6cb6ff",
    secondary="#7ac7c4",
    accent="#d2a8ff",
    foreground="#d0d7de",
    background="#0e1318",
    surface="#0e1318",
    panel="#1b232c",
    success="#57ab5a",
    warning="#e0b040",
    error="#f47067",
    dark=True,
    variables={"footer-key-foreground": "#6cb6ff", "block-cursor-text-style": "none"},
)
LIGHT = Theme(
    name="ampwatch-light",
    primary="#0550ae",
    secondary="#1b7c83",
    accent="#6639ba",
    foreground="#1f2328",
    background="#fcfcfb",
    surface="#fcfcfb",
    panel="#e8ebee",
    success="#116329",
    warning="#8a5a00",
    error="#b3202a",
    dark=False,
    variables={"footer-key-foreground": "#0550ae", "block-cursor-text-style": "none"},
)
THEMES = (DARK, LIGHT)
