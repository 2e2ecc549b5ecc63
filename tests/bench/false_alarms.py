"""What the rules say of trainings in which nothing is wrong, for as long as you like.

python tests/bench/false_alarms.py [STEPS [NAME ...]]

A finding above ``info`` is a false alarm; the exit code tells whether there was one. NAME is a demo
or ``near`` for other seeds, dtypes, scalers and learning rates; all of it without one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "demos")]

from healthy_runs import AS_THEY_ARE, NEAR_MISSES, examined  # noqa: E402

STEPS = 2000


def main(steps: int, names: list[str]) -> int:
    wanted = [*AS_THEY_ARE, *NEAR_MISSES]
    if names:
        wanted = [
            each
            for each in wanted
            if each.name in names or (each in NEAR_MISSES and "near" in names)
        ]
    alarms = 0
    for healthy in wanted:
        begun = time.perf_counter()
        session = examined(healthy, steps)
        seconds = time.perf_counter() - begun
        found = session.findings
        bad = [finding for finding in found if finding.severity != "info"]
        alarms += len(bad)
        run = session.run
        print(
            f"{'ALARM' if bad else 'quiet'}  {healthy!s:44} {run.steps:5,} steps "
            f"{run.skipped:3} skipped {seconds:5.0f} s   "
            + (", ".join(f"{each.rule} x{each.count}" for each in found) or "nothing found"),
            flush=True,
        )
        for finding in bad:
            print(
                f"       {finding.severity} {finding.rule}: {finding.message} "
                f"(steps {finding.first_step} to {finding.last_step})",
                flush=True,
            )
    print(f"{alarms} false alarms in {len(wanted)} trainings of {steps:,} steps")
    return 1 if alarms else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(int(arguments[0]) if arguments else STEPS, arguments[1:]))
