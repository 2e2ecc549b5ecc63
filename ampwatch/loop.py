"""One watched training loop: everything of torch's that is listened to, and what it means.

Nothing here may reach the loop but :class:`ampwatch.host.StopTraining`: whatever else goes wrong
with us, watching ends and training goes on.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.guard import Guard, guarded
from ampwatch.host import Host
from ampwatch.knobs import Knobs
from ampwatch.probe import private
from ampwatch.probe.autocast import AutocastWatch
from ampwatch.probe.backward import BackwardWatch, Roots
from ampwatch.probe.clipping import Clip, ClipWatch
from ampwatch.probe.finders import OptimizerFinder, ScalerFinder
from ampwatch.probe.ledger import Ledger
from ampwatch.probe.losses import strange
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.optimizers import Optimizers
from ampwatch.probe.parameters import Parameters, trained
from ampwatch.probe.saved_bytes import MemoryWatch
from ampwatch.probe.transfer import as_tensor
from ampwatch.record.facts import fact
from ampwatch.recorder import Recorder
from ampwatch.scaling import Scaling
from ampwatch.stepping import Stepping
from ampwatch.trouble import Trouble

EARLY_CLIPS = 8
"""So many are remembered of optimizers that have not stepped yet."""


class Part(Protocol):
    """Something of torch's that is listened to."""

    def open(self) -> None: ...
    def close(self) -> None: ...


class Loop:
    """One watched loop.

    Args:
        models: name the parameters.
        optimizers: whose steps are recorded; with neither, those of every optimizer there is.
        host: takes the records, and asks for knobs to be turned.
        share: of the training time that we may take.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        host: Host,
        share: float,
    ) -> None:
        self.guard = Guard(self.fail)
        self.host = host
        self.names = Parameters()
        self.autocast = AutocastWatch(self.fail)
        self.knobs = Knobs(self)
        self.optimizers = Optimizers(self.names, models, optimizers)
        self.recorder = Recorder(self.guard, host, self.names, self.optimizers, share)
        self.reader = self.recorder.reader
        self._ledger = Ledger(self.names)
        self.trouble = Trouble(
            self.names,
            self.recorder.facts,
            self.recorder.named,
            self.reader,
            self.recorder.tally,
            self.optimizers.together,
        )
        self.stepping = Stepping(
            self.guard,
            host,
            self.optimizers,
            self._ledger,
            self.recorder,
            self.autocast,
            self.knobs,
            self.trouble,
        )
        self.scaling = Scaling(self.stepping, self.knobs, newest=self.optimizers.everything)
        self._facts = self.recorder.facts
        self._early: list[Clip] = []
        self._backward = BackwardWatch(self.before_backward, self.after_backward)
        self._parts: list[Part] = [
            self.autocast,
            self._backward,
            ClipWatch(self.before_clip),
            OptimizerFinder(self.before_optimizer, self.after_optimizer),
            ScalerFinder(self.scaling.adopt, self.scaling.disabled),
            self.scaling.loads,
            self.trouble.packing,
        ]
        if host.measures_memory:
            packing = self.trouble.packing
            memory = MemoryWatch(self.guard, host, self.names, packing, self.recorder)
            self._parts.append(memory)
        if self.optimizers.everything:
            self._parts.append(self.recorder.finder)
        self.names.add_models(models)
        for part in self._parts:
            part.open()

    @property
    def scaler(self) -> GradScaler | None:
        """The scaler whose step was seen last, or that was handed over."""
        return self.scaling.scaler

    def scalers(self) -> list[GradScaler]:
        """All that are listened to and still there."""
        return self.scaling.all()

    def _forget_cleared(self) -> None:
        """What came back from an unscaled loss and was thrown away (for a gradient of the inputs,
        say) has no part in the step."""
        if all(
            parameter.grad is None
            for state in self.optimizers.states.values()
            if (optimizer := state.ref()) is not None
            for parameter in trained(optimizer)
        ):
            self._ledger.unscaled_at = -1

    # -- what torch calls -----------------------------------------------------------------------

    @guarded(fallback=0)
    def before_backward(self, roots: Roots) -> Roots:
        if len(roots) == 1 and isinstance(roots[0], Tensor):
            tensors = [roots[0]]
        else:
            tensors = [root for root in roots if isinstance(root, Tensor)]
        others = self.optimizers.others
        if others:
            ours = self.optimizers.own
            tensors = [root for root in tensors if not strange(root, ours, others)]
        if not tensors:
            return roots
        if private.autocast_active():
            self._facts.add("backward-in-autocast")
        if self._ledger.unscaled_at >= 0:
            self._forget_cleared()
        if self._ledger.left:
            self._ledger.look_back()
        unscaled = self._ledger.back(tensors)
        if self._ledger.by_hand is not None and self.scaling.active() is None:
            self._facts.add(fact("scaled-by-hand", factor=f"{self._ledger.by_hand:g}"))
        if self.stepping.dissection is not None:
            losses = self._ledger.losses.latest()
            gain = self.knobs.loss_gain
            self.stepping.dissection.before_backward(tensors, unscaled, losses, gain)
        if self.autocast.plain is None:
            self.autocast.look(tensors)
        self.trouble.before_backward(tensors, self._ledger.losses)
        if self.reader.spacing.earliest <= self.reader.step + 1:
            self.reader.before_backward(tensors)
            self._backward.follows = self.reader.flow.armed
        if self.trouble.plan.begins <= self.reader.step + 1:
            self.trouble.search_backward(tensors)
            self._backward.follows |= self.trouble.search.armed
        if self.scaling.stepping:
            self._facts.add("backward-in-step")
        if not unscaled:
            return roots
        gain = self.knobs.loss_gain
        if gain == 1.0:
            return roots
        plain = {id(root) for root in unscaled}
        return tuple(root * gain if id(root) in plain else root for root in roots)

    @guarded()
    def after_backward(self) -> None:
        """A backward pass that was looked at is over."""
        if self.reader.flow.armed:
            self.guard.spent += self.reader.flow.done()
        if self.trouble.search.armed:
            self.guard.spent += self.trouble.after_backward()

    @guarded()
    def before_clip(self, parameters: list[Tensor], max_norm: float, total: Tensor) -> None:
        ids = {id(parameter) for parameter in parameters}
        # Of a sharded model the total is spread out too: only a collective could tell it.
        known = None if hasattr(total, "to_local") else as_tensor(total).detach()
        holding = self.optimizers.holding(ids)
        if not holding and self.optimizers.everything and known is not None:
            early = Clip(ids, max_norm, known, before_reading=True)
            self._early = [*self._early[1 - EARLY_CLIPS :], early]
        for state, optimizer in holding:
            scaler = self._ledger.scale_in(self.scaler, state, optimizer)
            if scaler is not None and max_norm != math.inf:  # which only measures
                self._facts.add(fact("clip-while-scaled", limit=f"{max_norm:g}"))
            if state.reading is None:
                self.stepping.read(state, optimizer, scaler)
            if known is not None:
                state.clips.append(Clip(ids, max_norm, known))
            if self.stepping.dissection is not None:
                self.stepping.dissection.before_clip(state, scaler is not None)

    def before_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        state = self.optimizers.states.get(id(optimizer))
        if state is not None and state.in_scaler:
            state.ran = True
            if self.stepping.dissection is not None:
                self.stepping.dissection.before_step(state, optimizer, self.scaler)
            return
        state = self.stepping.begin(optimizer)
        if state is not None:
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            self._begin(state, optimizer, callable(closure))

    @guarded()
    def _begin(self, state: OptimizerState, optimizer: Optimizer, closure: bool) -> None:
        """A step without a scaler, or past it."""
        state.ran = True
        if private.autocast_active():
            self._facts.add("step-in-autocast")
        if closure:
            state.forget()  # the closure is still to make the gradients
            if self.stepping.dissection is not None:
                self.stepping.dissection.by_closure()
            return
        alone = len(self.optimizers.states) == 1
        if state.reading is not None and alone and self._ledger.passes > state.read_at:
            state.forget()  # clipped in the middle of accumulation
        if state.reading is None:
            scaler = self._ledger.scale_in(self.scaler, state, optimizer)
            self.stepping.read(state, optimizer, scaler)
            if self._early:
                mine = set(map(id, state.parameters))
                state.clips = [clip for clip in self._early if not mine.isdisjoint(clip.ids)]
                self._early = []
        if self.stepping.dissection is not None:
            self.stepping.dissection.before_step(state, optimizer, None)

    def after_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        state = self.optimizers.states.get(id(optimizer))
        if state is None or state.in_scaler or state.ref() is not optimizer:
            return
        self._end(state, optimizer)
        self.stepping.stepped()

    @guarded()
    def _end(self, state: OptimizerState, optimizer: Optimizer) -> None:
        if state.reading is None:  # a closure has made the gradients only now
            scaler = self._ledger.scale_in(self.scaler, state, optimizer)
            self.stepping.read(state, optimizer, scaler)
            state.movement = None  # the weights have moved already
        if self.scaling.active() is not None:
            if self._ledger.passed_by(state, optimizer):
                unscaled = "yes" if self._ledger.unscaled_now(state) else None
                again = "yes" if state.stepped_at == self._ledger.passes else None
                self._facts.add(fact("step-outside-scaler", unscaled=unscaled, again=again))
            elif (
                self._ledger.scaled_at < 0
                and self.autocast.dtype() == "float16"
                and self._ledger.unscaled_in(state)
            ):
                self._facts.add("unscaled-backward")  # the scaler is there, and never used
        self.stepping.end(state, optimizer, self.scaler, [])

    # -- the end --------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """We have failed: say so once, and leave the loop alone from now on."""
        if self.guard.closed:
            return
        self.close()
        kind = type(error).__name__
        self.host.say(f"ampwatch stopped watching, training goes on: {kind}: {error}")

    def close(self) -> None:
        """Leave torch and the loop as they were found; any number of times."""
        if self.guard.closed:
            return
        with contextlib.suppress(Exception):
            self.reader.flush(wait=True)
        with contextlib.suppress(Exception):
            self.stepping.close()
        self.guard.closed = True
        with contextlib.suppress(Exception):
            self.scaling.close()
        for part in reversed(self._parts):
            with contextlib.suppress(Exception):
                part.close()
        self.trouble.close()
        self._ledger.losses.clear()
        self.optimizers.states.clear()
