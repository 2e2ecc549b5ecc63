"""What a script printed: bytes in, lines of text out, in bounded memory.

Progress bars that rewrite their line with a carriage return stay one line. Colour codes are kept;
whoever shows the lines reads them.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable

KEPT_LINES = 5_000
KEPT_CHARACTERS = 4_000_000
LINE_CHARACTERS = 4_096
"""A longer line is broken: output without any line feed must not grow for ever."""

# Escape (colours) and tab mean something to whoever shows a line; the other controls would only
# move a cursor or ring a bell. Backspace, line feed and carriage return are acted on before.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


class OutputBuffer:
    """The latest lines of a script's output.

    Args:
        echo: called with each chunk of bytes as it came, by a front end that passes them on.
    """

    def __init__(self, echo: Callable[[bytes], None] | None = None) -> None:
        self.echo = echo
        self.lines: deque[str] = deque()
        self.current = ""
        """The unfinished line: a prompt, or a progress bar at work."""
        self.total = 0
        """Lines ever finished; the oldest of them may be gone from ``lines``."""
        self.version = 0
        """Grows whenever something changed."""
        self._characters = 0
        self._returned = False  # a carriage return came last: what follows replaces the line
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Take in a chunk, cut anywhere, even inside a character."""
        if self.echo is not None and data:
            self.echo(data)
        self._take(self._decoder.decode(data))

    def close(self) -> None:
        """No more will come: an unfinished line counts as a line."""
        self._take(self._decoder.decode(b"", final=True))
        self._decoder.reset()
        if self.current:
            self._end_line()
            self.version += 1

    def clear(self) -> None:
        """Forget everything, for a script that starts again."""
        self.lines.clear()
        self.current = ""
        self.total = self._characters = 0
        self._returned = False
        self._decoder.reset()
        self.version += 1

    def tail(self, count: int) -> list[str]:
        """The last ``count`` lines, the unfinished one included."""
        lines = [*self.lines, self.current] if self.current else list(self.lines)
        return lines[-count:] if count > 0 else []

    def _take(self, text: str) -> None:
        if not text:
            return
        *finished, rest = text.split("\n")
        for part in finished:
            self._write(part)
            self._end_line()
        self._write(rest)
        self.version += 1

    def _write(self, text: str) -> None:
        """Put text without a line feed on the current line, as a terminal would."""
        body = text.rstrip("\r")
        if body:
            last = body.rpartition("\r")[2]
            if len(last) < len(body) or self._returned:
                self.current = ""
            if "\b" in last:
                last = self._rub_out(last)
            self.current += _CONTROLS.sub("", last)
            self._returned = False
            while len(self.current) > LINE_CHARACTERS:
                rest = self.current[LINE_CHARACTERS:]
                self.current = self.current[:LINE_CHARACTERS]
                self._end_line()
                self.current = rest
        if len(body) < len(text):
            self._returned = True

    def _rub_out(self, text: str) -> str:
        """Act on backspaces, which some progress bars go back with."""
        line = list(self.current)
        for character in text:
            if character != "\b":
                line.append(character)
            elif line:
                line.pop()
        self.current = ""
        return "".join(line)

    def _end_line(self) -> None:
        self.lines.append(self.current)
        self.total += 1
        self._characters += len(self.current)
        self.current = ""
        self._returned = False
        while len(self.lines) > KEPT_LINES or self._characters > KEPT_CHARACTERS:
            self._characters -= len(self.lines.popleft())
