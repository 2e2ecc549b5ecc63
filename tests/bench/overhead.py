"""What watching costs a training: step time watched / plain, from alternating runs.

python tests/bench/overhead.py [ROUNDS]

``hook`` is the hook alone, ``headless`` is `ampwatch run --headless`, ``dashboard`` is
`ampwatch run` in a pseudo-terminal of 160x50.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable
from pathlib import Path

DRIVER = str(Path(__file__).parents[1] / "watched_demo.py")
DEMOS = {"linear": 3000, "digits": 150, "chargpt": 60}
ROUNDS = 5
ROWS, COLUMNS = 50, 160
AMPWATCH = [sys.executable, "-m", "ampwatch", "run", "--rate", "max"]


def plain(demo: str, result: str) -> None:
    command = [sys.executable, DRIVER, demo, str(DEMOS[demo]), result, "plain"]
    subprocess.run(command, check=True, capture_output=True)


def hook(demo: str, result: str) -> None:
    command = [sys.executable, DRIVER, demo, str(DEMOS[demo]), result]
    subprocess.run(command, check=True, capture_output=True)


def headless(demo: str, result: str) -> None:
    command = [*AMPWATCH, "--headless", DRIVER, demo, str(DEMOS[demo]), result]
    subprocess.run(command, check=True, capture_output=True)


def dashboard(demo: str, result: str) -> None:
    """Under the dashboard, with somebody who reads the terminal and leaves at the end."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [*AMPWATCH, DRIVER, demo, str(DEMOS[demo]), result],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        start_new_session=True,
    )
    os.close(terminal)
    done = threading.Event()

    def leave() -> None:
        while not Path(result).exists():
            if done.wait(0.2):
                return
        while not done.wait(0.5):
            os.write(screen, b"q")

    threading.Thread(target=leave, daemon=True).start()
    while True:
        try:
            if not os.read(screen, 65536):
                break
        except OSError:
            break
    done.set()
    process.wait()
    os.close(screen)


def measure(way: Callable[[str, str], None], demo: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "seconds"
        way(demo, str(result))
        return float(json.loads(result.read_text())["seconds"])


def main(rounds: int) -> None:
    print(f"step time, watched / plain: median (lowest to highest) of {rounds} rounds")
    print(f"{'demo':10} {'plain ms':>9} {'hook':>22} {'headless':>22} {'dashboard':>22}")
    for demo in DEMOS:
        base: list[float] = []
        ratios: dict[str, list[float]] = {"hook": [], "headless": [], "dashboard": []}
        for _ in range(rounds):
            for way in (hook, headless, dashboard):
                before = measure(plain, demo)
                watched = measure(way, demo)
                base.append(before)
                ratios[way.__name__].append(watched / before)
        cells = [
            f"{statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})"
            for each in ratios.values()
        ]
        print(
            f"{demo:10} {statistics.median(base) * 1000:9.3f} "
            + " ".join(f"{cell:>22}" for cell in cells),
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
