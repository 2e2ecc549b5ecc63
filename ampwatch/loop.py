"""What the calls of a training loop mean: which optimizer begins and ends its step, with which
losses, at which scale, and where one step ends and the next begins.

Nothing here may reach the loop but :class:`ampwatch.host.StopTraining`: whatever else goes wrong
with us, watching ends and training goes on.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.controls import Request
from ampwatch.guard import guarded
from ampwatch.host import Host
from ampwatch.knobs import Knobs
from ampwatch.probe import private
from ampwatch.probe.autocast import AutocastWatch
from ampwatch.probe.backward import BackwardWatch, Roots
from ampwatch.probe.clipping import ClipWatch
from ampwatch.probe.draft import Clip
from ampwatch.probe.finders import OptimizerFinder, ScalerFinder
from ampwatch.probe.ledger import Ledger
from ampwatch.probe.losses import iterated, multiplied, strange, tensors_in
from ampwatch.probe.optimizers import Optimizers
from ampwatch.probe.parameters import Parameters
from ampwatch.probe.scaler import listen, unlisten
from ampwatch.probe.steps import OptimizerState
from ampwatch.record import Notice
from ampwatch.recorder import Recorder


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
        share: of the training time that the expensive probes may take.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        host: Host,
        share: float,
    ) -> None:
        self.closed = False
        self.host = host
        self.names = Parameters()
        self.autocast = AutocastWatch(self.fail)
        self.knobs = Knobs(self)
        self.optimizers = Optimizers(self.names, models, optimizers)
        self.recorder = Recorder(host, self.names, self.optimizers, share)
        self.reader = self.recorder.reader
        self._ledger = Ledger(self.names)
        self._facts = self.recorder.facts
        self._scaler: weakref.ref[GradScaler] | None = None
        self._scalers: list[weakref.ref[GradScaler]] = []
        self._current: Any = None
        self._early: list[Clip] = []
        """Clips of parameters whose optimizer has not been seen yet."""
        self._boundary_due = False
        self._updates = False
        self._parts: tuple[Part, ...] = (
            self.autocast,
            BackwardWatch(self.before_backward),
            ClipWatch(self.before_clip),
            OptimizerFinder(self.before_optimizer, self.after_optimizer),
            ScalerFinder(self.adopt),
        )
        if self.optimizers.everything:
            self._parts += (self.recorder.finder,)
        self.names.add_models(models)
        for part in self._parts:
            part.open()

    # -- the scaler -----------------------------------------------------------------------------

    @property
    def scaler(self) -> GradScaler | None:
        """The scaler whose step was seen last, or that was handed over."""
        return None if self._scaler is None else self._scaler()

    def scalers(self) -> list[GradScaler]:
        """All that are listened to and still there."""
        return [scaler for ref in self._scalers if (scaler := ref()) is not None]

    @guarded()
    def adopt(self, scaler: GradScaler) -> None:
        """Listen to a scaler; a script may make a new one at any time."""
        listen(scaler, self)
        self._scalers = [ref for ref in self._scalers if ref() not in (None, scaler)]
        self._scalers.append(weakref.ref(scaler))
        if self.scaler is None or self.optimizers.everything:
            self._scaler = self._scalers[-1]
        self.knobs.adopted(scaler)

    @guarded(fallback=1)
    def before_scale(self, scaler: GradScaler, outputs: Any) -> Any:
        gain = self.knobs.loss_gain
        if iterated(outputs):
            return self._one_by_one(outputs, gain)
        return outputs if gain == 1.0 else multiplied(outputs, gain)

    @guarded(fallback=2)
    def after_scale(self, scaler: GradScaler, outputs: Any, scaled: Any) -> Any:
        if isinstance(outputs, Tensor):
            self._ledger.losses.scaled(outputs, scaled)
        elif iterated(outputs):
            return self._noted(scaled)
        else:
            for loss, result in zip(tensors_in(outputs), tensors_in(scaled), strict=True):
                self._ledger.losses.scaled(loss, result)
        return scaled

    def _one_by_one(self, outputs: Any, gain: float) -> Iterator[Any]:
        for output in outputs:
            self._current = output
            yield output if gain == 1.0 else multiplied(output, gain)

    def _noted(self, results: Any) -> Iterator[Any]:
        """``scale`` gives these as they are asked for; each is made from the current output."""
        for result in results:
            yield self.after_scale(None, self._current, result)  # type: ignore[arg-type]
        self._current = None

    @guarded()
    def before_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        if not scaler.is_enabled():
            return
        state = self._state(optimizer)
        if state is None:
            return
        state.scaler = id(scaler)
        if state.reading is None:
            self._read(state, optimizer, scaler)
        state.unscaled_at = self._ledger.passes

    @guarded()
    def failed_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        state = self.optimizers.states.get(id(optimizer))
        if state is not None and not state.in_scaler:
            self._emit_refused(state, optimizer)

    def before_step(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        state = self._begin(optimizer)
        if state is not None:
            self._begin_scaled(state, scaler, optimizer)

    @guarded()
    def _begin_scaled(
        self, state: OptimizerState, scaler: GradScaler, optimizer: Optimizer
    ) -> None:
        if self.scaler is not scaler:
            self._scaler = weakref.ref(scaler)
        state.scaler = id(scaler)
        state.in_scaler = True
        if private.autocast_active():
            self._facts.add("step-in-autocast")
        if state.reading is None:
            self._read(state, optimizer, scaler if scaler.is_enabled() else None)

    @guarded()
    def after_step(self, scaler: GradScaler, optimizer: Optimizer, failed: bool) -> None:
        state = self.optimizers.states.get(id(optimizer))
        if state is None or state.reading is None:
            return
        if failed:
            self._emit_refused(state, optimizer)
            return
        if scaler.is_enabled():
            state.unscaled_at = self._ledger.passes
        self._emit(state, optimizer, private.found_infs(scaler, optimizer))

    @guarded(fallback=1)
    def before_update(self, scaler: GradScaler, new_scale: Any) -> Any:
        return self.knobs.new_scale(scaler, new_scale)

    def after_update(self, scaler: GradScaler) -> None:
        self._updates = True
        key = id(scaler)
        for state in self.optimizers.states.values():
            if state.reading is not None and state.scaler == key:
                state.forget()  # the loop unscaled it, and then decided not to step
        if self._boundary_due:
            self._boundary()

    # -- what torch calls -----------------------------------------------------------------------

    @guarded(fallback=0)
    def before_backward(self, roots: Roots) -> Roots:
        tensors = [root for root in roots if isinstance(root, Tensor)]
        others = self.optimizers.others
        if others:
            ours = self.optimizers.own
            tensors = [root for root in tensors if not strange(root, ours, others)]
        if not tensors:
            return roots
        if private.autocast_active():
            self._facts.add("backward-in-autocast")
        unscaled = self._ledger.back(tensors)
        if not unscaled:
            return roots
        scaler = self.scaler
        if scaler is not None and scaler.is_enabled():
            self._facts.add("unscaled-backward")
        gain = self.knobs.loss_gain
        if gain == 1.0:
            return roots
        plain = {id(root) for root in unscaled}
        return tuple(root * gain if id(root) in plain else root for root in roots)

    @guarded()
    def before_clip(self, parameters: list[Tensor], max_norm: float, total: Tensor) -> None:
        ids = {id(parameter) for parameter in parameters}
        # Of a sharded model the total is spread out too: only a collective could tell it.
        known = None if hasattr(total, "to_local") else torch.as_tensor(total).detach()
        holding = self.optimizers.holding(ids)
        if not holding and self.optimizers.everything and known is not None:
            self._early = [*self._early[-7:], Clip(ids, max_norm, known, before_reading=True)]
        for state, optimizer in holding:
            scaler = self._ledger.scale_in(self.scaler, state, optimizer)
            if scaler is not None:
                self._facts.add("clip-while-scaled")
            if state.reading is None:
                self._read(state, optimizer, scaler)
            if known is not None:
                state.clips.append(Clip(ids, max_norm, known))

    def before_optimizer(self, optimizer: Optimizer, closure: bool) -> None:
        state = self.optimizers.states.get(id(optimizer))
        if state is not None and state.in_scaler:
            state.ran = True
            return
        state = self._begin(optimizer)
        if state is not None:
            self._begin_direct(state, optimizer, closure)

    @guarded()
    def _begin_direct(self, state: OptimizerState, optimizer: Optimizer, closure: bool) -> None:
        state.ran = True
        if private.autocast_active():
            self._facts.add("step-in-autocast")
        if closure:
            state.forget()  # the closure is still to make the gradients
            return
        alone = len(self.optimizers.states) == 1
        if state.reading is not None and alone and self._ledger.passes > state.read_at:
            state.forget()  # clipped in the middle of accumulation
        if state.reading is None:
            self._read(state, optimizer, self._ledger.scale_in(self.scaler, state, optimizer))
            if self._early:
                mine = set(map(id, state.parameters))
                state.clips = [clip for clip in self._early if not mine.isdisjoint(clip.ids)]
                self._early = []

    def after_optimizer(self, optimizer: Optimizer) -> None:
        state = self.optimizers.states.get(id(optimizer))
        if state is None or state.in_scaler or state.ref() is not optimizer:
            return
        self._end_direct(state, optimizer)
        if self._boundary_due and not self._updates and self.reader.complete():
            self._boundary()

    @guarded()
    def _end_direct(self, state: OptimizerState, optimizer: Optimizer) -> None:
        if state.reading is None:  # a closure has made the gradients only now
            self._read(state, optimizer, self._ledger.scale_in(self.scaler, state, optimizer))
        scaler = self.scaler
        if scaler is not None and scaler.is_enabled() and self._ledger.passed_by(state, optimizer):
            self._facts.add("step-outside-scaler")
        self._emit(state, optimizer, [])

    # -- inside ---------------------------------------------------------------------------------

    def _read(self, state: OptimizerState, optimizer: Optimizer, scaler: GradScaler | None) -> None:
        state.read_at = self._ledger.passes
        self.reader.read(state, optimizer, scaler)

    def _begin(self, optimizer: Optimizer) -> OptimizerState | None:
        """A step begins; the boundary of the one before is here when no update() was one."""
        state = self._state(optimizer)
        if state is not None and self._boundary_due and self.reader.has_stepped(optimizer):
            self._boundary()
        return state

    @guarded()
    def _state(self, optimizer: Optimizer) -> OptimizerState | None:
        strangers = len(self.optimizers.others)
        state = self.optimizers.state(optimizer)
        if len(self.optimizers.others) > strangers:
            self._ledger.losses.clear()  # they may be those of a network that is not ours
        return state

    def _emit(self, state: OptimizerState, optimizer: Optimizer, found: list[Tensor]) -> None:
        self._boundary_due = True
        state.stepped_at = self._ledger.passes
        losses = self._ledger.losses.taken()
        self.recorder.emit(state, optimizer, found, losses, self.autocast.dtype(), self.knobs)

    def _emit_refused(self, state: OptimizerState, optimizer: Optimizer) -> None:
        if state.reading is None:
            return
        self._boundary_due = True
        dtype, losses = self.autocast.dtype(), self._ledger.losses.taken()
        self.recorder.emit_refused(state, optimizer, losses, dtype, self.knobs)

    def _boundary(self) -> None:
        self._boundary_due = False
        if self.closed:
            return
        self._next_step()
        self.host.boundary(self._turn)

    @guarded()
    def _next_step(self) -> None:
        self._ledger.losses.next_step()
        self.autocast.next_step()
        self.reader.flush(wait=False)

    def _turn(self, request: Request) -> Notice | None:
        try:
            return self.knobs.turn(request)
        except Exception as error:
            return Notice(f"that did not work: {error}", request.knob, None, refused=True)

    def fail(self, error: Exception) -> None:
        """We have failed: say so once, and leave the loop alone from now on."""
        if self.closed:
            return
        self.close()
        kind = type(error).__name__
        self.host.say(f"ampwatch stopped watching, training goes on: {kind}: {error}")

    def close(self) -> None:
        """Leave torch and the loop as they were found; any number of times."""
        if self.closed:
            return
        with contextlib.suppress(Exception):
            self.reader.flush(wait=True)
        self.closed = True
        for part in reversed(self._parts):
            with contextlib.suppress(Exception):
                part.close()
        for scaler in self.scalers():
            with contextlib.suppress(Exception):
                unlisten(scaler, self)
        self._scalers.clear()
        self._ledger.losses.clear()
        self.optimizers.states.clear()
