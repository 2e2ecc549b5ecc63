"""Says when Ctrl+C has reached the script: one that saves on it gets all the time it needs."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import Any


def tell_when_heard(fd: int) -> None:
    """Write a byte to ``fd`` each time an interrupt is raised in the script.

    A loop that is inside a call of C does not hear it yet, and one that is stuck there never does.
    """
    plain = signal.default_int_handler
    if signal.getsignal(signal.SIGINT) is not plain:
        return  # ignored, as under nohup
    owner = os.getpid()

    def heard(number: int, frame: FrameType | None) -> Any:
        if os.getpid() == owner:
            with contextlib.suppress(OSError):
                os.write(fd, b"!")
        return plain(number, frame)

    # Under its own name too: asyncio asks whether the handler is still python's own.
    signal.default_int_handler = heard
    signal.signal(signal.SIGINT, heard)
