"""What is looked at only when something has gone wrong: the cause of a loss that is not finite,
the operation of backward that first made inf or NaN, gradients that were never cleared, and running
statistics that a skipped step has spoilt.

A step that is all right costs one look at its loss.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ampwatch.hindsight import MOST_GLANCES, RESTED_STEPS, Hindsight
from ampwatch.probe.absent import Absent
from ampwatch.probe.anatomy_values import capturing
from ampwatch.probe.backward_origin import OriginSearch
from ampwatch.probe.draft import HIDDEN
from ampwatch.probe.inquest import inquire
from ampwatch.probe.left import Left
from ampwatch.probe.losses import Losses
from ampwatch.probe.news import Remains
from ampwatch.probe.operations import Naming
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.packing import PackingWatch
from ampwatch.probe.parameters import Parameters
from ampwatch.probe.search_plan import SearchPlan
from ampwatch.probe.statistics import LateStatistics, as_fact, spoilt
from ampwatch.probe.steps import StepReader
from ampwatch.probe.transfer import at_hand
from ampwatch.record.facts import fact
from ampwatch.tally import Tally

MOST_INQUESTS = 24
"""So many losses are looked into; by then it is known where inf and NaN come from."""
MOST_LOOKS = 64
"""So often the running statistics are looked at."""


class Trouble:
    """Armed by inf and NaN.

    Args:
        names: of the parameters, and the models they are in.
        facts: of the step that is being taken.
        naming: of parameters that an optimizer may not have shown yet.
        reader: of gradients; it keeps the budget, and learns of skips where numbers come late.
        tally: of the records so far.
        together: whether all optimizers step after the same backward pass.
    """

    def __init__(
        self,
        names: Parameters,
        facts: set[str],
        naming: Naming,
        reader: StepReader,
        tally: Tally,
        together: Callable[[], bool],
    ) -> None:
        self.packing = PackingWatch()
        self.search = OriginSearch(naming, self.packing)
        self.plan = SearchPlan(reader.budget)
        """Which backward passes are to be searched."""
        self._reader = reader
        self._tally = tally
        self._together = together
        self._hindsight = Hindsight(reader, tally, self.plan, self.packing, naming)
        self._arming_seconds = 0.0
        self._origin: str | None = None
        """Found in the latest backward pass, for the optimizer that gets what it made."""
        self.at_once: bool | None = None
        """Whether numbers are there without waiting for a device: nothing is looked at else. Not
        known before the first backward pass."""
        self._remains = Remains()
        self._remains.looked()
        self._names = names
        self._facts = facts
        self._named = naming
        self._inquests = self._looks = self._calm = 0
        self._bad_loss = self._suspicious = False
        self._glances = 0
        self._suspects: list[OptimizerState] = []
        self._waiting: list[OptimizerState] = []
        self._told: set[str] = set()
        self._absent = Absent(names)

    def before_backward(self, roots: list[Tensor], losses: Losses) -> None:
        """A backward pass begins.

        Args:
            losses: what these roots were made of, without the scale.
        """
        if self.at_once is None:
            self.at_once = at_hand(roots[0])
        if not self.at_once:
            if self._waiting:
                self._ask_waiting()
            self._hindsight.before_backward(roots)
            return
        if self._suspects:
            self._ask_suspects()
        if losses.finite():
            self._calm += 1
            if self._calm == 1:
                self._remains.finite()
            if self._calm > RESTED_STEPS:
                self._calm = self._inquests = 0
                self.plan.rested()
            if self._suspicious:
                self._look_behind(roots)
            return
        self._calm = 0
        self._bad_loss = True
        if self._inquests >= MOST_INQUESTS or self.packing.seen:
            return
        self._inquests += 1
        found = inquire(roots, self._named)
        self._facts.update(self._remains.believed([] if found is None else [found]))

    def _look_behind(self, roots: list[Tensor]) -> None:
        """A loss is finite, and some gradient was 0 throughout at a detail step: an inf in a
        divisor makes 0 of everything, and no loss shows it."""
        self._suspicious = False
        if self._glances >= MOST_GLANCES or self.packing.seen:
            return
        self._glances += 1
        found = inquire(roots, self._named)
        if found is not None and found.startswith(HIDDEN):
            self._facts.add(found)

    def search_backward(self, roots: list[Tensor]) -> None:
        """The backward pass that begins is searched, if the plan says so."""
        if self.search.blind:
            self.plan.end()
        elif not self._bad_loss and not capturing(roots[0]):
            reader = self._reader
            if self.plan.wants(reader.coming(), reader.step_seconds()):
                begun = time.perf_counter()
                self._origin = None
                self.search.arm(roots)
                self._arming_seconds = time.perf_counter() - begun
                reader.budget.loud()

    def after_backward(self) -> float:
        """A backward pass that was searched is over; seconds that were spent in it."""
        found, late, seconds = self.search.done()
        cost = self._arming_seconds + seconds
        self.plan.searched(self._reader.coming(), cost, found is not None)
        if found is not None:
            self._origin = found
        elif late is not None:
            self._reader.origin = late
        return seconds

    def _skipped(self, state: OptimizerState) -> None:
        """A skip beside a finite loss."""
        self._calm = 0
        before = self._tally.last
        by_scale = bool(state.scale) and (before is None or state.scale[0].item() != before.scale)
        step = self._reader.step
        self.plan.skipped(step, step, by_scale=by_scale, explained=self._explained())

    def after_read(self, state: OptimizerState) -> None:
        """Gradients were read, and they hold inf or NaN now, or did so before."""
        if state.counts is not None and self._origin is not None:
            self._facts.add(self._origin)
            self._origin = None
        stale, state.stale = state.stale, None
        suspect = self._bad_parameter(state)
        if suspect is None:
            state.suspect = None
            self._suspects = [each for each in self._suspects if each is not state]
            return
        if stale:
            self._facts.add(fact("stale-gradients", tensor=self._names.name(suspect, 0, 0)))
        state.suspect = weakref.ref(suspect)
        if state not in self._suspects:
            self._suspects.append(state)

    def before_record(self, state: OptimizerState) -> None:
        """A step is over; its forward pass may have spoilt running statistics."""
        if not self.at_once and self._hindsight.learning:
            self._hindsight.after_step()
        if not (self.at_once and (self._bad_loss or state.counts is not None)):
            return
        if not self._bad_loss:
            self._skipped(state)
        self._bad_loss = False
        if self._looks >= MOST_LOOKS:
            return
        self._looks += 1
        self._look_at_statistics()

    def skipped_late(self, state: OptimizerState, losses: Sequence[Tensor | float]) -> None:
        """Where numbers come late, the scaler has waited for the device to skip this step: nothing
        is in the way of a look now. Whether these gradients are still there at the next step is
        told by their change counters, without a look.

        Args:
            losses: what was back-propagated for it.
        """
        found = self._hindsight.skipped(losses)
        if found is not None:
            self._facts.add(found)
        if state.left is not None and state.left.stale:
            self._facts.add(fact("stale-gradients", tensor=state.left.name(self._names)))
        state.left = Left.of(state.parameters)
        if state not in self._waiting:
            self._waiting.append(state)
        if self._looks < MOST_LOOKS:
            self._looks += 1
            self._look_at_statistics(waited=True)

    def _look_at_statistics(self, *, waited: bool = False) -> None:
        for buffer in spoilt(self._names.models(), waited=waited):
            if buffer.module not in self._told:
                self._told.add(buffer.module)
                self._facts.add(as_fact(buffer.module, buffer.name))

    def at_detail(self, state: OptimizerState) -> None:
        """A step with figures of each parameter is over: what has no gradient, what stood still."""
        if state.reading is not None and state.reading.index:
            absent = self._absent.look(state)
            if absent is not None:
                self._facts.add(absent)
        if self.at_once:
            self._look_at_statistics()
            self._suspicious = state.values is not None and 0.0 in state.values
        else:
            state.statistics = LateStatistics(self._names.models())
        if state.movement is not None:
            state.movement.look()

    def close(self) -> None:
        self._suspects.clear()
        self._waiting.clear()

    def _explained(self) -> bool:
        """Whether this very step's backward pass has told where inf or NaN began."""
        return any(each.startswith("backward-origin") for each in self._facts)

    def _ask_waiting(self) -> None:
        """As :meth:`_ask_suspects`, for gradients that cannot be looked at.

        Where the optimizers of a loop do not share their passes, one of another may come before
        these gradients are cleared: nothing is told there.
        """
        together = self._together()
        for state in self._waiting.copy():
            if state.left is None or not together or not state.left.unchanged():
                state.left = None
                self._waiting.remove(state)

    def _ask_suspects(self) -> None:
        """Whether what was inf or NaN at the step before is so still, before this pass begins.

        In a loop with several networks a pass of one comes before the gradients of the other are
        cleared; so it must be so at every pass since.
        """
        for state in self._suspects:
            parameter = None if state.suspect is None else state.suspect()
            gradient = None if parameter is None else parameter.grad
            bad = gradient is not None and not bool(torch.isfinite(gradient).all())
            state.stale = bad if state.stale is None else state.stale and bad

    def _bad_parameter(self, state: OptimizerState) -> Tensor | None:
        reading = state.reading
        if reading is None or state.counts is None or reading.values is None:
            return None
        for position, count in enumerate(state.counts):
            if count:
                return state.parameters[reading.index[position]]
        return None
