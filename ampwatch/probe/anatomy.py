"""Takes one step apart: the operations of its forward pass, and its numbers at each stage.

Somebody asked for it, so here numbers are read at once, which on a GPU waits for the device.
Nothing is changed, and nothing is left behind after the step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch.probe import private
from ampwatch.probe.anatomy_follow import Follower, can_follow
from ampwatch.probe.anatomy_forward import ForwardPass
from ampwatch.probe.anatomy_values import extent, loss_value, with_scale
from ampwatch.probe.calls import sweep
from ampwatch.probe.draft import learning_rate
from ampwatch.probe.dtypes import dtype_name
from ampwatch.probe.optimizer_state import OptimizerState
from ampwatch.probe.parameters import Parameters
from ampwatch.probe.scaler import scale_in_force
from ampwatch.record import StepAnatomy

F = TypeVar("F", bound=Callable[..., Any])
COMPILED = (
    "torch.compile has made code in this process, and to look at single operations "
    "would make it compile anew"
)
CAPTURING = "a CUDA graph is being captured"
BROKEN = "the forward pass was left by an error"
UNSEEN = "no operation was seen before the gradients were there"


def _safely(method: F) -> F:
    """An error of ours ends this one look, and neither the training nor the watching."""

    @functools.wraps(method)
    def call(self: Dissection, *args: Any, **kwargs: Any) -> Any:
        if self.closed:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.fail(error)
            return None

    return call  # type: ignore[return-value]


class Dissection:
    """One step, from the end of the one before to its own end.

    Args:
        names: of parameters and modules.
        parameters: ids of what is trained.
        tensor: the parameter to follow; without one, the origin of an overflow or a middle weight.
        failed: is told in a sentence why there will be no record.
    """

    def __init__(
        self,
        names: Parameters,
        parameters: set[int],
        tensor: str | None,
        failed: Callable[[str], None],
    ) -> None:
        self.tensor = tensor
        self.closed = False
        self.reason: str | None = None
        """Why the operations of the forward pass cannot be listed."""
        self.record: StepAnatomy | None = None
        """Once the step is over, but for what ``update`` makes of the scale."""
        self._names = names
        self._parameters = parameters
        self._failed = failed
        self._forward: ForwardPass | None = None
        self._state: OptimizerState | None = None
        self._scaler: GradScaler | None = None
        self._follower: Follower | None = None
        self._known: dict[str, Any] = {}
        self._passes = 0
        self._clipped_scaled = self._divided = self._late = False

    @property
    def over(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.closed or self.record is not None

    @_safely
    def open(self) -> None:
        """The next step begins."""
        self.reason = self._why_not()
        if self.reason is None:
            self._forward = ForwardPass(self._names.module_names(), self._parameters, self.fail)
            self._forward.open()

    def _why_not(self) -> str | None:
        if private.compiled_code() or private.compiled_autograd():
            return COMPILED
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return CAPTURING
        return None

    @_safely
    def before_backward(
        self, roots: list[Tensor], unscaled: list[Tensor], losses: list[Tensor], gain: float
    ) -> None:
        """A backward pass begins.

        Args:
            unscaled: those of the roots that carry no scale.
            losses: what they were made of, without the scale.
            gain: by what a key multiplies the loss.
        """
        scaled = with_scale(roots[0], unscaled, losses)
        if self._forward is not None:
            self._forward.forward_ends(scaled)
        self._passes += 1
        if self._passes > 1 or not losses:
            return
        self._known = {"loss": loss_value(losses[0]), "loss_dtype": dtype_name(losses[0].dtype)}
        self._known["loss_gain"] = gain
        if scaled is not None:
            self._known["scaled_loss"] = loss_value(scaled.detach())

    @_safely
    def read(self, state: OptimizerState, injected: bool) -> None:
        """The gradients of an optimizer are there, as backward has left them; the first
        optimizer that comes here is the one that is told of.

        Args:
            injected: a key has just put one inf into them.
        """
        sweep()
        if self.record is not None:
            return
        if self._state is None:
            self._state = state
        reading = state.reading
        if self._state is not state or reading is None:
            return
        if self._forward is not None:
            self._forward.forward_ends(None)  # torch.autograd.grad: no backward was seen
        scale = [float(each) for each in state.scale]
        places = self._names.backward_order([state.parameters[at] for at in reading.index])
        extents = {place: extent(reading.gradients[place]) for place in places}
        bad = [at for at, each in extents.items() if each is not None and each.nonfinite]
        largest = [each.largest for each in extents.values() if each and each.largest is not None]
        dtypes = [dtype_name(gradient.dtype) for gradient in reading.gradients]
        self._known |= {
            "scale": scale[0] if scale else None,
            "growth_tracker": int(scale[1]) if len(scale) > 1 else None,
            "tensors": len(places),
            "gradient_dtypes": tuple(dict.fromkeys(dtypes)),
            "gradient_largest": max(largest, default=None),
            "nonfinite_tensors": len(bad),
            "injected": injected,
            "nonfinite_values": sum(each.nonfinite for each in extents.values() if each),
        }
        named = {self._name(state, reading.index[place]): reading.index[place] for place in places}
        origin = self._name(state, reading.index[bad[0]]) if bad else None
        self._known["origin"] = origin
        self._follow(state, named, origin, scale[0] if scale else None)

    def _name(self, state: OptimizerState, index: int) -> str:
        return self._names.name(state.parameters[index], 0, index)

    def _follow(
        self, state: OptimizerState, named: dict[str, int], origin: str | None, scale: float | None
    ) -> None:
        """Choose the parameter: the one asked for, the origin of an overflow, a middle weight."""
        parameters = state.parameters
        possible = [name for name, at in named.items() if can_follow(parameters[at])]
        weights = [name for name in possible if parameters[named[name]].dim() > 1] or possible
        wanted = [self.tensor, origin, *weights[len(weights) // 2 :], *weights]
        name = next((each for each in wanted if each in possible), None)
        self._follower = None
        if name is not None and not self._late:
            self._follower = Follower(parameters[named[name]], name, scale)

    @_safely
    def by_closure(self) -> None:
        """The optimizer calls the loss itself: gradients are seen only when it has stepped."""
        self._late = True

    @_safely
    def before_clip(self, state: OptimizerState, scaled: bool) -> None:
        """Its gradients are about to be clipped, perhaps while they carry the scale."""
        if state is self._state and self._follower is not None:
            self._clipped_scaled = self._clipped_scaled or scaled
            self._follower.before_clip()

    @_safely
    def before_step(self, state: OptimizerState, optimizer: Optimizer, scaler: Any) -> None:
        """The optimizer's own step begins."""
        if state is self._state and self._follower is not None:
            self._divided = (
                scaler is None
                or not private.unscales_itself(optimizer)
                or private.is_unscaled(scaler, optimizer)
            )
            self._follower.before_step()

    @_safely
    def end(
        self,
        state: OptimizerState,
        optimizer: Optimizer,
        scaler: GradScaler | None,
        found: list[Tensor],
        step: int,
        dtype: str,
        mode: str | None,
    ) -> None:
        """The step has been taken, skipped or refused.

        Args:
            step: its number.
            found: found_inf, where the scaler has looked.
            dtype: what the step was computed in.
            mode: of the scaler.
        """
        if state is not self._state or self.record is not None:
            return
        self._scaler = scaler
        flag = max((float(each) for each in found), default=None)
        fused = bool(found) and private.unscales_itself(optimizer)
        clip = state.clips[0] if state.clips else None
        follower = self._follower
        forward = self._forward
        operations = () if forward is None else forward.operations()
        if not operations and self.reason is None:
            self.reason = BROKEN if forward is not None and forward.broken else UNSEEN
        self.record = StepAnatomy(
            **self._known,
            step=step,
            optimizer=state.label,
            dtype=dtype,
            operations=operations,
            left_out=0 if forward is None else forward.left_out,
            no_operations=self.reason,
            losses=self._passes,
            scaler=mode,
            followed=None
            if follower is None
            else follower.done(
                clips=clip is not None, divided=self._divided or not (fused and state.ran)
            ),
            found_inf=flag,
            clip_norm=None if clip is None else float(clip.total),
            clip_limit=None if clip is None else float(clip.max_norm),
            clipped_scaled=self._clipped_scaled,
            stepped=(state.ran or self._late) and not (fused and bool(flag)),
            fused=fused,
            lr=learning_rate(optimizer),
        )
        self._let_go()

    def finished(self) -> StepAnatomy | None:
        """The record, with what ``update`` has made of the scale; None if the step is not over."""
        record = self.record
        if self.closed or record is None:
            return None
        after: list[float] = []
        if self._scaler is not None:
            after = [float(each) for each in scale_in_force(self._scaler)]
        self._scaler = None
        return replace(
            record,
            scale_after=after[0] if after else None,
            growth_tracker_after=int(after[1]) if len(after) > 1 else None,
        )

    def close(self) -> None:
        """Leave everything as it was found; any number of times."""
        self.closed = True
        self._let_go()
        sweep()

    def fail(self, error: Exception) -> None:
        if not self.closed:
            self.close()
            self._failed(f"the step could not be taken apart: {type(error).__name__}: {error}")

    def _let_go(self) -> None:
        if self._forward is not None:
            self._forward.close()
        self._forward = self._follower = self._state = None
