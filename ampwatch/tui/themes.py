"""Two calm themes of our own, and the same with high contrast for a projector; every theme that
Textual ships works as well.
"""

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
CONTRAST_DARK = Theme(
    name="ampwatch-projector-dark",
    primary="#7cc7ff",
    secondary="#6ff2e6",
    accent="#e3b5ff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#262626",
    success="#6dff8b",
    warning="#ffd23f",
    error="#ff8078",
    dark=True,
    variables={
        "footer-key-foreground": "#7cc7ff",
        "block-cursor-text-style": "none",
        "foreground-muted": "#d8d8d8",
    },
)
CONTRAST_LIGHT = Theme(
    name="ampwatch-projector-light",
    primary="#003b8e",
    secondary="#005e63",
    accent="#4b1a8f",
    foreground="#000000",
    background="#ffffff",
    surface="#ffffff",
    panel="#dcdcdc",
    success="#004d1a",
    warning="#6b4300",
    error="#97000e",
    dark=False,
    variables={
        "footer-key-foreground": "#003b8e",
        "block-cursor-text-style": "none",
        "foreground-muted": "#303030",
    },
)
THEMES = (DARK, LIGHT, CONTRAST_DARK, CONTRAST_LIGHT)
