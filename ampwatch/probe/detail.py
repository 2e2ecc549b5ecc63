"""Per-parameter figures, as often as the budget allows."""

from __future__ import annotations

import contextlib
import random

import torch
from torch import Tensor

from ampwatch.probe.budget import Budget
from ampwatch.probe.exponents import ExponentCounts
from ampwatch.probe.gradients import count_nonfinite

EARLY_STEPS = (1, 6, 12, 35)
"""A short run has to show its gradients too: four detail steps come whatever they cost."""
FIRST_GAP_STEPS = 20
LONGEST_GAP_STEPS = 2000
PAID_BACK = 0.25
"""Of what was spent too much, before each detail step."""
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

    The distance is such that detail steps cost no more than their part of the training time, and
    irregular, from a generator of its own: a fixed distance would beat against accumulation,
    evaluation and growth intervals, and torch's generators belong to the training.

    Args:
        budget: of the expensive looks.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._random = random.Random(SEED)
        self.next = EARLY_STEPS[0]  # step 0 has torch's own warm-up in it
        self.earliest = self.next
        """No detail step comes before this one; the latest one, while its step goes on."""
        self._step = -1
        self._spread = 1.0
        self._timed = self._real = 0.0
        """What the latest detail step cost: as far as it was timed on the spot, and by the account,
        which has it one record later."""

    @property
    def cost(self) -> float:
        """What a detail step costs, in seconds; 0 before the first."""
        return max(self._timed, self._real)

    def due(self, step: int) -> bool:
        if step == self._step:
            return True  # all optimizers of a step have theirs
        self.earliest = self.next
        return step >= self.next

    def ask(self) -> None:
        """Somebody wants to see the next step; it is paid back like any other."""
        self.next = self._step + 1

    def took(self, step: int, seconds: float, step_seconds: float) -> None:
        """A detail step cost ``seconds``, where a step of the loop takes ``step_seconds``."""
        if step != self._step:
            self._timed = self._real = 0.0
            self._spread = self._random.uniform(0.7, 1.3)
        self._budget.loud(detail=True)
        self._timed += seconds
        self._step = self.earliest = step
        self._plan(step_seconds)

    def settle(self, seconds: float, step_seconds: float) -> None:
        """So much is on the account for the latest detail step."""
        self._real += seconds
        self._plan(step_seconds)

    def _plan(self, step_seconds: float) -> None:
        # What was spent too much is paid back with as much again as a detail step costs, at most:
        # the next one comes later, and it does come.
        cost = self.cost + min(PAID_BACK * self._budget.debt(step_seconds), self.cost)
        allowed = max(self._budget.part(step_seconds) * step_seconds, 1e-9)
        gap = min(max(cost / allowed, FIRST_GAP_STEPS), LONGEST_GAP_STEPS)
        self.next = self._step + max(1, round(gap * self._spread))
        early = next((each for each in EARLY_STEPS if each > self._step), self.next)
        self.next = min(self.next, early)
