"""What is looked at where numbers come from a device some steps late: nothing can be looked into
when it happens, so the passes after it are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from ampwatch.probe.anatomy_values import capturing
from ampwatch.probe.batches import Batches
from ampwatch.probe.late_inquest import LateInquest
from ampwatch.probe.news import Remains, Tale
from ampwatch.probe.operations import Naming
from ampwatch.probe.packing import PackingWatch
from ampwatch.probe.search_plan import LONGEST_SEARCH_STEPS, SearchPlan
from ampwatch.probe.steps import StepReader
from ampwatch.tally import Tally

RESTED_STEPS = 1000
"""After so many backward passes without trouble as much is looked into again."""
MOST_BATCH_LOOKS = 64
"""So often the batch of a loss that was not finite is looked at."""
MOST_GLANCES = 4
"""So many graphs of finite losses are looked into."""


class Hindsight:
    """Learns of trouble late, and plans what to look at then.

    Args:
        reader: of gradients, which has the news.
        tally: of the records so far.
        plan: of searches in backward.
        packing: whether what nodes keep may be read.
        naming: of parameters.
    """

    def __init__(
        self,
        reader: StepReader,
        tally: Tally,
        plan: SearchPlan,
        packing: PackingWatch,
        naming: Naming,
    ) -> None:
        self._reader = reader
        self._tally = tally
        self._plan = plan
        self._loss_plan = SearchPlan(reader.budget, LONGEST_SEARCH_STEPS)
        """Of inquests."""
        self._packing = packing
        self._naming = naming
        self._heard = dict.fromkeys((reader.news.skips, reader.news.losses), (0, 0))
        self._calm = self._glances = self._batch_looks = 0
        self._looked_at = -1
        """The latest step whose batch was looked at; news of it are none any more."""
        self._remains = Remains()
        self._remains.looked()
        self._batches = Batches()

    @property
    def learning(self) -> bool:
        """Whether the steps are still learned from."""
        return self._batches.learning

    def before_backward(self, roots: list[Tensor]) -> None:
        """A backward pass begins."""
        news = self._reader.news
        self._calm += 1
        self._learn(news.skips, self._plan, by_scale=self._tally.after_move)
        self._learn(news.losses, self._loss_plan, by_scale=False)
        if self._calm > RESTED_STEPS:
            self._calm = 0
            self._plan.rested()
            self._loss_plan.rested()
        if self._loss_plan.begins <= self._reader.step + 1 or news.vanished:
            self._ask_ahead(roots)
        if self._batches.learning:
            self._batches.before_backward(roots, self._naming, readable=self._readable(roots))

    def after_step(self) -> None:
        """A step was taken that is learned from."""
        self._batches.after_step()

    def skipped(self, losses: Sequence[Tensor | float]) -> str | None:
        """The scaler has waited for the device, to skip a step: nothing is in the way of a look.

        Returns:
            The fact that the batch is to blame, where its loss was not finite for that reason.
        """
        if self._batches.learning:
            self._batches.after_step()
        if all(math.isfinite(float(loss)) for loss in losses):
            return None
        step = self._reader.step
        if self._looked_at < step - 1:
            self._remains.finite()
        self._looked_at = step
        found = None
        if self._batch_looks < MOST_BATCH_LOOKS:
            self._batch_looks += 1
            found = self._batches.trouble()
        if found is None:
            self._reader.news.remains.looked()
        believed = self._remains.believed([] if found is None else [found])
        self._loss_plan.skipped(step, step, by_scale=False, explained=found is not None)
        return believed[0] if believed else None

    def _readable(self, roots: list[Tensor]) -> bool:
        return not self._packing.seen and not capturing(roots[0])

    def _learn(self, tale: Tale, plan: SearchPlan, *, by_scale: bool) -> None:
        told, untold = self._heard[tale]
        if (told, untold) == (tale.told, tale.untold):
            return
        self._calm = 0
        self._heard[tale] = tale.told, tale.untold
        if tale.told != told:
            plan.found()
        if tale.untold != untold and (plan is self._plan or tale.latest > self._looked_at):
            plan.skipped(tale.latest, self._reader.step, by_scale=by_scale, explained=False)

    def _ask_ahead(self, roots: list[Tensor]) -> None:
        """Put every question of an inquest, if this loss may turn out not to be finite, or may have
        an inf behind it that it does not show."""
        reader, plan = self._reader, self._loss_plan
        wanted = plan.wants(reader.coming(), reader.step_seconds())
        glance = reader.news.vanished and self._glances < MOST_GLANCES
        reader.news.vanished = False
        if not (wanted or glance) or not self._readable(roots):
            return
        self._glances += glance
        begun = time.perf_counter()
        try:
            reader.inquests.append(LateInquest(roots, self._naming))
        except torch.OutOfMemoryError:
            plan.end()  # the device is full to the brim before backward: the loop comes first
            return
        reader.budget.loud()
        if wanted:
            plan.searched(reader.coming(), time.perf_counter() - begun, found=False)
