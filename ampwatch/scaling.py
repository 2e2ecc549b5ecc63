"""What the calls of a loop's GradScaler mean."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.guard import guarded
from ampwatch.knobs import Knobs
from ampwatch.probe import private, resume
from ampwatch.probe.losses import iterated, multiplied, tensors_in
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.scaler import listen, unlisten
from ampwatch.record.facts import fact
from ampwatch.stepping import Stepping


class Scaling:
    """Listens to the scalers of one loop.

    Args:
        newest: whether the scaler that was made last is the loop's own.
    """

    def __init__(self, stepping: Stepping, knobs: Knobs, newest: bool) -> None:
        self.guard = stepping.guard
        self._stepping = stepping
        self._ledger = stepping.ledger
        self._knobs = knobs
        self._newest = newest
        self._current: Any = None
        self._scaler: weakref.ref[GradScaler] | None = None
        self._scalers: list[weakref.ref[GradScaler]] = []
        self._took: dict[int, int] = {}
        """Which scaler stepped which parameters: its id by that of one of them."""
        self.loads = resume.LoadWatch()
        self.stepping = False
        """Whether a scaler is inside its step()."""

    @property
    def scaler(self) -> GradScaler | None:
        """The scaler whose step was seen last, or that was handed over."""
        return None if self._scaler is None else self._scaler()

    def active(self) -> GradScaler | None:
        """The same, if it is on."""
        scaler = self.scaler
        return scaler if scaler is not None and scaler.is_enabled() else None

    def all(self) -> list[GradScaler]:
        """All that are listened to and still there."""
        return [scaler for ref in self._scalers if (scaler := ref()) is not None]

    @guarded()
    def adopt(self, scaler: GradScaler) -> None:
        """Listen to a scaler; a script may make a new one at any time."""
        name = resume.deprecated(type(scaler))
        if name is not None:
            self._stepping.facts.add(fact("deprecated-api", name=name))
        listen(scaler, self)
        key = id(scaler)  # maybe that of one that is gone
        known = any(ref() is scaler for ref in self._scalers)
        if not known:
            self._took = {each: -1 if of == key else of for each, of in self._took.items()}
            for state in self._stepping.optimizers.states.values():
                if state.scaler == key:
                    state.scaler = -1
        self._scalers = [ref for ref in self._scalers if ref() not in (None, scaler)]
        self._scalers.append(weakref.ref(scaler))
        if self.scaler is None or self._newest:
            self._scaler = self._scalers[-1]
        self._knobs.adopted(scaler)

    @guarded()
    def disabled(self, device: str) -> None:
        """A scaler was asked for on a device that is not there."""
        self._stepping.facts.add(fact("scaler-disabled", device=device))

    def close(self) -> None:
        for scaler in self.all():
            unlisten(scaler, self)
        self._scalers.clear()

    # -- what a scaler calls --------------------------------------------------------------------

    def before_scale(self, scaler: GradScaler, outputs: Any) -> Any:
        if self._knobs.loss_gain == 1.0 and isinstance(outputs, Tensor):
            return outputs  # as nearly always
        return self._before_scale(outputs)

    @guarded(fallback=0)
    def _before_scale(self, outputs: Any) -> Any:
        gain = self._knobs.loss_gain
        if iterated(outputs):
            return self._one_by_one(outputs, gain)
        return outputs if gain == 1.0 else multiplied(outputs, gain)

    @guarded(fallback=2)
    def after_scale(self, scaler: GradScaler, outputs: Any, scaled: Any) -> Any:
        if isinstance(outputs, Tensor):
            self._ledger.losses.scaled(outputs, scaled)
        elif iterated(outputs):
            return self._noted(scaler, scaled)
        else:
            for loss, result in zip(tensors_in(outputs), tensors_in(scaled), strict=True):
                self._ledger.losses.scaled(loss, result)
        return scaled

    def _one_by_one(self, outputs: Any, gain: float) -> Iterator[Any]:
        for output in outputs:
            self._current = output
            yield output if gain == 1.0 else multiplied(output, gain)

    def _noted(self, scaler: GradScaler, results: Any) -> Iterator[Any]:
        """``scale`` gives these as they are asked for; each is made from the current output."""
        for result in results:
            yield self.after_scale(scaler, self._current, result)
        self._current = None

    def before_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        state = self._stepping.optimizers.states.get(id(optimizer))
        if state is None or not state.in_scaler:  # in step() everything has been read
            self._before_unscale(scaler, optimizer)

    @guarded()
    def _before_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        if not scaler.is_enabled():
            return
        state: OptimizerState | None = self._stepping.state(optimizer)
        if state is None:
            return
        if state.scaler != id(scaler):
            self._takes_over(state, scaler, optimizer)
        if state.reading is None:
            self._compare_scales(state, scaler)
            self._stepping.read(state, optimizer, scaler)
        if self._ledger.left:
            self._note_left(optimizer)
        state.unscaled_at = self._ledger.passes
        self._ledger.open[id(optimizer)] = state

    @guarded()
    def failed_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        state = self._stepping.optimizers.states.get(id(optimizer))
        if state is not None and not state.in_scaler:
            self._note_refusal()
            self._stepping.refused(state, optimizer, scaler)

    def before_step(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        state = self._stepping.begin(optimizer)
        if state is not None:
            self._begin(state, scaler, optimizer)

    @guarded()
    def _begin(self, state: OptimizerState, scaler: GradScaler, optimizer: Optimizer) -> None:
        if self._scaler is None or self._scaler() is not scaler:
            self._scaler = weakref.ref(scaler)
        if state.scaler != id(scaler):
            self._takes_over(state, scaler, optimizer)
        state.in_scaler = self.stepping = True
        if private.autocast_active():
            self._stepping.facts.add("step-in-autocast")
        enabled = scaler.is_enabled()
        if enabled and self._ledger.unscaled_at >= 0 and self._ledger.unscaled_in(state):
            self._stepping.facts.add("unscaled-backward")
        if self._ledger.mixed and id(optimizer) in self._ledger.mixed:
            self._stepping.facts.add("backward-after-unscale")
        if state.reading is None:
            self._compare_scales(state, scaler)
            self._stepping.read(state, optimizer, scaler if enabled else None)
        if self._ledger.left:
            self._note_left(optimizer)
        if enabled:
            state.unscaled_at = self._ledger.passes

    @guarded()
    def after_step(self, scaler: GradScaler, optimizer: Optimizer, failed: bool) -> None:
        self.stepping = False
        state = self._stepping.optimizers.states.get(id(optimizer))
        if state is None or state.reading is None:
            return
        if failed:
            self._note_refusal()
            self._stepping.refused(state, optimizer, scaler)
        else:
            found = private.found_infs(scaler, optimizer)
            self._stepping.end(state, optimizer, scaler, found)

    def _note_refusal(self) -> None:
        """torch raises because of the order of calls; a script may catch that and go on."""
        error = sys.exc_info()[1]
        if isinstance(error, RuntimeError) and "update()" in str(error):
            self._stepping.facts.add(fact("order-refused", error=str(error)))

    def _takes_over(self, state: OptimizerState, scaler: GradScaler, optimizer: Optimizer) -> None:
        """A scaler steps these parameters for the first time."""
        key = min(state.ids, default=0)
        before = self._took.get(key)
        if scaler.is_enabled():
            if before is not None and before != id(scaler):
                self._stepping.facts.add("new-scaler")
            if state.stepped_at < 0 and state.scaler is None:
                steps = resume.steps_before(optimizer)
                if (steps or self.loads.knows(optimizer)) and resume.untouched(scaler):
                    told = fact("resumed-without-scaler-state", steps=steps or None)
                    self._stepping.facts.add(told)
            self._took[key] = id(scaler)
        state.scaler = id(scaler)

    def _note_left(self, optimizer: Optimizer) -> None:
        """Gradients are unscaled; those that were before an update are so for the second time."""
        if self._ledger.left.pop(id(optimizer), None) is not None:
            self._stepping.facts.add("unscaled-twice")

    def _compare_scales(self, state: OptimizerState, scaler: GradScaler) -> None:
        """Whether an update has come since gradients were made that are about to be unscaled; by
        how much the scale has changed."""
        if state.made_at is None or state.made_at[0] != self._ledger.scaled_at:
            return
        now = private.scale_tensor(scaler)
        if now is not None:
            factor = float(state.made_at[1]) / float(now)
            self._stepping.facts.add(fact("update-between", factor=f"{factor:g}"))

    @guarded()
    def _note_scales(self, scaler: GradScaler) -> None:
        """An update comes while gradients of some optimizers wait for their step."""
        for state in self._stepping.optimizers.states.values():
            waiting = self._ledger.scaled_at > state.stepped_at
            if waiting and state.reading is None and state.made_at is None:
                scale = private.scale_tensor(scaler)
                if scale is not None:
                    state.made_at = (self._ledger.scaled_at, scale.detach().clone())

    def before_update(self, scaler: GradScaler, new_scale: Any) -> Any:
        if len(self._stepping.optimizers.states) > 1:
            self._note_scales(scaler)
        return self._new_scale(scaler, new_scale) if self._knobs.static else new_scale

    @guarded(fallback=1)
    def _new_scale(self, scaler: GradScaler, new_scale: Any) -> Any:
        return self._knobs.new_scale(scaler, new_scale)

    def after_update(self, scaler: GradScaler) -> None:
        for state in self._stepping.optimizers.states.values():
            if state.reading is not None and state.scaler == id(scaler):
                state.forget()  # the loop unscaled it, and then decided not to step
        if self._ledger.open:
            self._ledger.leave()
        self._stepping.updated()
