"""How fast this machine itself computes in each format: measured, not assumed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

PATIENCE_SECONDS = 60.0
# Our own path, not the working directory's: a file there may be named like a module of Python's.
_CODE = "import sys; sys.path[:] = {!r}; from ampwatch.probe.speed import main; main()"


@dataclass(frozen=True, slots=True)
class Machine:
    """The device that the loops ran on."""

    device: str
    name: str = ""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """A matrix product in a dtype: how many times as fast as in float32."""


def measure(device: str) -> Machine:
    """Ask a process of its own, as this one does not load torch; takes two seconds."""
    path = [entry for entry in sys.path if entry]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE.format(path), device],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        told = json.loads(done.stdout.splitlines()[-1])
        speeds = {str(dtype): float(factor) for dtype, factor in told["speeds"].items()}
        return Machine(device, str(told["name"]), speeds)
    except (OSError, ValueError, KeyError, IndexError, subprocess.SubprocessError):
        return Machine(device)
