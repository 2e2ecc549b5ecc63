"""Memory of a run after ten thousand and after a million synthetic records.

python tests/bench/memory.py
"""

from __future__ import annotations

import math
import os
import random
import sys
import time

from ampwatch.record import StepRecord
from ampwatch.run import Run

MEBIBYTE = 1024 * 1024


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def record(step: int, noise: random.Random) -> StepRecord:
    skipped = noise.random() < 0.005
    return StepRecord(
        step,
        step * 0.01,
        loss=3 * math.exp(-step / 1e5) + noise.random(),
        losses=1,
        scale=2.0 ** (16 - skipped),
        growth_tracker=step % 2000,
        skipped=skipped,
        grad_norm=math.inf if skipped else noise.random(),
        nonfinite_tensors=3 if skipped else 0,
        nonfinite_values=40 if skipped else 0,
        origin=f"layer{noise.randrange(12)}.weight" if skipped else None,
        dtype="float16",
        scaler="dynamic",
        lr=1e-3,
        optimizer="AdamW",
        target_gain=1.0,
        loss_gain=1.0,
        overhead=0.01,
        metrics={"accuracy": noise.random()} if step % 50 == 0 else {},
    )


def main() -> None:
    noise = random.Random(1)
    run = Run()
    print(f"{'records':>10} {'resident MiB':>13} {'µs a record':>12}")
    done = 0
    for target in (1, 10_000, 100_000, 1_000_000):
        begun = time.process_time()
        count = target - done
        while done < target:
            run.add(record(done, noise))
            done += 1
        cost = (time.process_time() - begun) / count * 1e6
        print(f"{done:>10,} {resident_bytes() / MEBIBYTE:>13.1f} {cost:>12.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
