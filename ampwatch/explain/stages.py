"""All stages of a step, in the order in which they happened."""

from __future__ import annotations

from ampwatch.explain import backward, forward, update
from ampwatch.explain.stage import Stage
from ampwatch.record import ScalerInfo, StepAnatomy


def stages(anatomy: StepAnatomy, info: ScalerInfo | None = None) -> tuple[Stage, ...]:
    """The stages of one step; those that its loop does not have are there too, and say why.

    Args:
        info: the settings of the scaler, where they are known.
    """
    unscale, check, clip = update.unscale(anatomy), update.check(anatomy), update.clip(anatomy)
    # A loop that clips what still carries the scale does so before anything is divided.
    middle = (clip, unscale, check) if anatomy.clipped_scaled else (unscale, check, clip)
    return (
        forward.forward(anatomy),
        forward.loss(anatomy),
        forward.scaled_loss(anatomy),
        backward.gradients(anatomy),
        *middle,
        update.step(anatomy),
        update.update(anatomy, info),
    )
