"""A real terminal for a command: a pseudo-terminal whose other end the test holds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

PATIENCE = 60.0
LEAVE_ALTERNATE_SCREEN = "\x1b[?1049l"


class Terminal:
    """One command at work in a terminal of 120x40."""

    def __init__(self, *arguments: str) -> None:
        self._ours, self._theirs = os.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.modes = self.modes_now()
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ampwatch", *arguments],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color"},
        )

    def modes_now(self) -> list[Any]:
        return termios.tcgetattr(self._theirs)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def read(self, seconds: float = 0.05) -> None:
        while select.select([self._ours], [], [], seconds)[0]:
            self.text += os.read(self._ours, 65536).decode("utf-8", "replace")
            seconds = 0.0

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while words not in self.text:
            self.read()
            assert time.monotonic() < deadline, f"{words!r} not in {self.text[-3000:]!r}"
            assert self.process.poll() is None or words in self.text, self.text[-3000:]

    def end(self) -> int:
        """Wait until the command has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, self.text[-3000:]
        self.read()
        return self.process.returncode

    @property
    def left_behind(self) -> str:
        """What stays on the terminal after the dashboard has gone."""
        return self.text.rpartition(LEAVE_ALTERNATE_SCREEN)[2]

    def restored(self) -> bool:
        """Whether the terminal is as it was: modes, screen, cursor and mouse."""
        shown = self.text.rfind("\x1b[?25h") > self.text.rfind("\x1b[?25l")
        mouse = self.text.rfind("\x1b[?1000l") > self.text.rfind("\x1b[?1000h")
        screen = self.text.rfind(LEAVE_ALTERNATE_SCREEN) > self.text.rfind("\x1b[?1049h")
        return self.modes_now() == self.modes and shown and mouse and screen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@contextlib.contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    """Run ampwatch in a terminal."""
    opened = Terminal(*arguments)
    try:
        yield opened
    finally:
        opened.close()
