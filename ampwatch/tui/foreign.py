"""Text that others wrote (tensor names, script output, log lines), made safe for the screen.

It never becomes markup, never moves the cursor, and never takes a width that terminals disagree
about. Only colours survive.
"""

from __future__ import annotations

import re
import unicodedata

from rich.style import Style
from rich.text import Text

_VARIATION_SELECTORS = range(0xFE00, 0xFE10)  # terminals disagree about the width they ask for
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_ESCAPE = re.compile(
    r"\x1b\[[0-9;:]*m"  # colour: the one kept
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # titles, links, device strings
    r"|[\x1b\x9b]\[?[0-?]*[ -/]*[@-~]"  # cursor movement, clearing, modes
)


class _Shown(dict[int, str]):
    """What each awkward character is shown as, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)
        if code in (0x09, 0x0A, 0x0D) or kind in ("Zs", "Zl", "Zp"):
            shown = " "
        elif code < 0x20:
            shown = chr(0x2400 + code)  # the picture of that control character
        elif code == 0x7F:
            shown = "\u2421"
        elif kind in ("Cc", "Cs", "Cn"):
            shown = "\ufffd"
        elif kind == "Cf" or code in _VARIATION_SELECTORS:
            shown = ""  # zero-width joiners, direction overrides, byte order marks
        else:
            shown = character
        self[code] = shown
        return shown


_SHOWN = _Shown()


def plain(text: str) -> str:
    """One line of foreign text in which every character takes the room it seems to take."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_SHOWN)


def shorten(text: str, width: int) -> str:
    """Foreign text cut in its middle to ``width`` characters: names differ at both ends."""
    text = plain(text)
    if len(text) <= width:
        return text
    if width < 3:
        return text[: max(width, 0)]
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def uncoloured(line: str) -> str:
    """A line of script output without any escape sequence."""
    if "\x1b" in line or "\x9b" in line:
        line = _ESCAPE.sub("", line)
    return plain(line.expandtabs())


def coloured(line: str) -> Text:
    """A line of script output with its colours, and nothing else that it asks a terminal for."""
    if "\x1b" not in line and "\x9b" not in line:
        return Text(plain(line.expandtabs()), no_wrap=True, end="")
    text = Text(no_wrap=True, end="")
    style = Style.null()
    position = 0
    line = line.expandtabs()
    for match in _ESCAPE.finditer(line):
        text.append(plain(line[position : match.start()]), style)
        position = match.end()
        if _COLOUR.fullmatch(match.group()):
            style = _restyled(style, match.group())
    text.append(plain(line[position:]), style)
    return text


def _restyled(style: Style, escape: str) -> Style:
    """The style after one colour sequence, as Rich reads it."""
    from rich.ansi import AnsiDecoder  # only a script that prints in colour needs it

    decoder = AnsiDecoder()
    decoder.style = style
    decoder.decode_line(escape)
    return decoder.style
