"""Per-parameter figures, as often as the budget allows."""

from __future__ import annotations

import contextlib
import random

import torch
from torch import Tensor

from ampwatch.probe.exponents import ExponentCounts
from ampwatch.probe.gradients import count_nonfinite

EARLY_STEPS = (1, 6, 12, 35)
"""A short run has to show its gradients too: four detail steps come whatever they cost."""
FIRST_GAP_STEPS = 20
LONGEST_GAP_STEPS = 2000
SEED = 20_260_101


class Figures:
    """Largest magnitude, zeros, non-finite values and exponents of gradients, on their device.

    Laid out as three scalars a gradient, so that one transfer brings them all; the exponents have
    their own.

    Args:
        choice: where sampling of large gradients begins.
    """

    __slots__ = ("exponents", "scalars", "sizes")

    def __init__(self, gradients: list[Tensor], choice: random.Random) -> None:
        self.sizes = [gradient.numel() for gradient in gradients]
        self.scalars: list[Tensor] = []
        for gradient in gradients:
            if gradient.numel() == 0:
                nothing = torch.zeros((), device=gradient.device)
                self.scalars += [nothing, nothing, nothing]
                continue
            low, high = torch.aminmax(gradient)  # NaN comes through, as it should
            self.scalars += [
                torch.maximum(low.abs(), high.abs()),
                gradient.numel() - torch.count_nonzero(gradient),
                count_nonfinite(gradient),
            ]
        self.exponents: ExponentCounts | None = None
        # Not every device and format can tell exponents: then the other figures have to do.
        with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):
            self.exponents = ExponentCounts(gradients, choice)


class Spacing:
    """When the next detail step is due.

    The distance is such that detail steps cost no more than their share of the training time, and
    irregular, from a generator of its own: a fixed distance would beat against accumulation,
    evaluation and growth intervals, and torch's generators belong to the training.

    Args:
        share: of the training time that detail steps may take.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._random = random.Random(SEED)
        self.next = EARLY_STEPS[0]  # step 0 has torch's own warm-up in it
        self.earliest = self.next
        """No detail step comes before this one; the latest one, while its step goes on."""
        self._step = -1
        self._cost = 0.0

    def due(self, step: int) -> bool:
        if step == self._step:
            return True  # all optimizers of a step have theirs
        self.earliest = self.next
        return step >= self.next

    def affordable(self, spent: float, elapsed: float) -> bool:
        """Whether one more set of figures would keep ``spent`` inside the share of ``elapsed``."""
        return self.allows(spent + self._cost, elapsed)

    def allows(self, spent: float, elapsed: float) -> bool:
        """Whether ``spent`` is inside the share of ``elapsed``."""
        return spent <= self._share * elapsed

    def took(self, step: int, seconds: float, step_seconds: float) -> None:
        """A detail step cost ``seconds``, where a step of the loop takes ``step_seconds``."""
        self._cost = seconds + (self._cost if step == self._step else 0.0)
        self._step = self.earliest = step
        allowed = max(self._share * step_seconds, 1e-9)
        gap = min(max(self._cost / allowed, FIRST_GAP_STEPS), LONGEST_GAP_STEPS)
        self.next = step + max(1, round(gap * self._random.uniform(0.7, 1.3)))
        early = next((each for each in EARLY_STEPS if each > step), self.next)
        self.next = min(self.next, early)
