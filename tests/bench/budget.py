"""Whether watching stays inside its budget: at most 2 % of the step time with ``budget=0.01``.

python tests/bench/budget.py [ROUNDS [DEMO]]

A plain loop, the hook with its log, and a second plain loop train the same numbers in turns, ten
steps each. Detail steps are in it as they come, all but the one at step 1. The ratio is that of all
steps together, with a bootstrap over the rounds for its 95 % interval; the second plain loop shows
what the measurement can tell apart.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turns import Way, ratios, take_turns

import ampwatch
from ampwatch import host
from ampwatch.host import Host
from ampwatch.log import LogWriter, read_log
from ampwatch.record import StepRecord, TensorStats

BUDGET = 0.01
LIMIT = 1.02
ROUNDS = 60
BLOCK = 10
WARM_UP = 1
"""Rounds before the first that counts: torch's own first steps are slow."""
RESAMPLES = 4000


class Hook(Way):
    """The hook with this budget, recording."""

    def attach(self, model: Any, optimizer: Any, scaler: Any) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "run.jsonl"
        self._host = Host(log=LogWriter(str(self._log)))
        host.install(self._host)
        self._watch = ampwatch.hook(model, optimizer, scaler, budget=BUDGET)

    def held_back(self, seconds: float) -> None:
        # As a dashboard that holds a loop back: the turns of the others are no step time.
        self._host.waited += seconds

    def results(self) -> dict[str, float]:
        self._watch.close()
        self._host.close("finished")
        first = WARM_UP * BLOCK
        shares, details = [], 0
        for record in read_log(str(self._log)):
            if isinstance(record, StepRecord) and record.step >= first:
                shares.append(record.overhead or 0.0)
            elif isinstance(record, TensorStats) and record.step >= first:
                details += 1
        self._folder.cleanup()
        return {"share": statistics.fmean(shares), "details": details, "steps": len(shares)}


def interval(watched: Sequence[float], plain: Sequence[float]) -> tuple[float, float]:
    """95 % of what the ratio of all rounds is when rounds are drawn anew."""
    draw = random.Random(0)
    count = len(plain)
    drawn = []
    for _ in range(RESAMPLES):
        rounds = draw.choices(range(count), k=count)
        drawn.append(sum(watched[each] for each in rounds) / sum(plain[each] for each in rounds))
    drawn.sort()
    return drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES)]


def main(rounds: int, demo: str) -> int:
    ways = {"plain": Way, "hook": Hook, "plain again": Way}
    times = take_turns(demo, ways, rounds, BLOCK, WARM_UP)
    for name, seen in times.items():
        if seen.error is not None:
            print(f"{name} ended with {seen.error}")
            return 1
    plain = times["plain"]
    step = statistics.median(plain.wall) / BLOCK * 1000
    print(f"{demo}, budget {BUDGET}: {rounds} rounds of {BLOCK} steps, {step:.1f} ms a plain step")
    print(f"{'':12} {'clock':10} {'all steps':>10} {'95 % interval':>18} {'median round':>14}")
    high = 0.0
    for name in ("hook", "plain again"):
        for clock in ("wall", "cpu"):
            watched, base = getattr(times[name], clock), getattr(plain, clock)
            low, high_here = interval(watched, base)
            if name == "hook" and clock == "wall":
                high = high_here
            print(
                f"{name:12} {clock:10} {sum(watched) / sum(base):10.4f} "
                f"{low:9.4f} to {high_here:.4f} {statistics.median(ratios(watched, base)):13.4f}"
            )
    own = times["hook"].results
    print(
        f"ampwatch itself says {100 * own['share']:.2f} % of the step time, "
        f"with {own['details']:.0f} detail steps in {own['steps']:.0f}"
    )
    kept = high <= LIMIT
    print(f"the interval {'ends' if kept else 'does not end'} below {LIMIT}")
    return 0 if kept else 1


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(
        main(
            int(arguments[0]) if arguments else ROUNDS,
            arguments[1] if len(arguments) > 1 else "chargpt",
        )
    )
