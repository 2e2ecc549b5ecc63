"""Steps taken apart, as the linear demo gives them, for tests that need no training."""

from __future__ import annotations

import math
from dataclasses import replace

from ampwatch.record import Followed, Operation, StepAnatomy

HALF, FULL = "float16", "float32"

NAMES = ("forward", "loss", "scale", "gradients", "unscale", "check", "clip", "step", "update")
"""The stages of a step, in their order."""

FORWARD = (
    Operation(
        *("linear", "0", (FULL,), (FULL, FULL), HALF),
        *(3.25, 0, 4096, HALF, 1792.0, 0),
    ),
    Operation("relu", "1", (HALF,), (), HALF, 3.25, 0, 4096, HALF, 2048.0, 0),
    Operation("linear", "2", (HALF,), (FULL, FULL), HALF, 1.5, 0, 64, HALF, 5120.0, 0),
    Operation("mse_loss", None, (HALF, FULL), (), FULL, 0.21, 0, 1, FULL, 65536.0, 0),
)

TAKEN = StepAnatomy(
    step=12,
    optimizer="Adam",
    dtype=HALF,
    operations=FORWARD,
    loss=0.0031,
    loss_dtype=FULL,
    losses=1,
    scaler="dynamic",
    scale=65536.0,
    growth_tracker=12,
    scaled_loss=203.1616,
    tensors=4,
    gradient_dtypes=(FULL,),
    gradient_largest=5120.0,
    followed=Followed(
        name="0.weight",
        dtype=FULL,
        gradient_dtype=FULL,
        shape=(64, 32),
        index=(33, 1000, 2047),
        scaled=(512.0, -1.5, 2.0**-10),
        unscaled=(512.0 / 65536, -1.5 / 65536, 2.0**-26),
        before=(0.125, -0.0625, 0.25),
        after=(0.124, -0.0615, 0.249),
        largest=512.0,
        zeros=3,
        flushed=7,
    ),
    found_inf=0.0,
    stepped=True,
    lr=1e-3,
    scale_after=65536.0,
    growth_tracker_after=13,
)
"""A healthy step in float16 under a dynamic scaler."""

SKIPPED = replace(
    TAKEN,
    step=13,
    operations=(
        replace(FORWARD[0], gradient_largest=0.0, gradient_nonfinite=4096),
        replace(FORWARD[1], gradient_largest=0.0, gradient_nonfinite=4096),
        replace(FORWARD[2], gradient_largest=61440.0, gradient_nonfinite=9),
        replace(FORWARD[3], gradient_largest=65536.0),
    ),
    loss=3100.0,
    scaled_loss=3100.0 * 65536,
    growth_tracker=13,
    gradient_largest=4096.0,
    nonfinite_tensors=4,
    nonfinite_values=2113,
    origin="2.bias",
    followed=Followed(
        name="2.bias",
        dtype=FULL,
        gradient_dtype=FULL,
        shape=(1,),
        index=(0,),
        scaled=(math.inf,),
        unscaled=(math.inf,),
        before=(0.5,),
        after=(0.5,),
        largest=None,
        nonfinite=1,
        flushed=0,
    ),
    found_inf=1.0,
    stepped=False,
    scale_after=32768.0,
    growth_tracker_after=0,
)
"""The same network when the targets are a thousand times as large: an overflow."""
