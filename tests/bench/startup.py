"""How long the command line takes to answer: python tests/bench/startup.py"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 7
COMMANDS = (["--help"], ["--version"], ["demo", "--list"], ["demo", "nosuchdemo"])


def seconds(arguments: list[str]) -> float:
    """The time of one command from start to exit."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ampwatch", *arguments], capture_output=True, check=False)
    return time.perf_counter() - begun


def main() -> None:
    for arguments in COMMANDS:
        times = [seconds(arguments) for _ in range(RUNS)]
        print(
            f"ampwatch {' '.join(arguments):16} median {statistics.median(times):.3f} s, "
            f"{min(times):.3f} to {max(times):.3f}"
        )


if __name__ == "__main__":
    main()
