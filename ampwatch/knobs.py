"""What turning a knob does to a loop, and the sentence why not where it can do nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.amp import GradScaler

from ampwatch import controls
from ampwatch.controls import Request, Value
from ampwatch.probe import private
from ampwatch.probe.autocast import DTYPES
from ampwatch.probe.scaler import describe, scale_in_force, switch
from ampwatch.record import Notice, ScalerInfo

if TYPE_CHECKING:
    from ampwatch.loop import Loop

LARGEST_SCALE = 2.0**127
"""The scale is a float32; the next power of two is infinite."""
SMALLEST_SCALE = 2.0**-126


class Knobs:
    """The values in force on the training side.

    All of them take effect between two steps, where :meth:`turn` is called.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.target_gain = 1.0
        self.target_gain_read = False
        """Whether the loop multiplies its targets by ``watch.target_gain``."""
        self.loss_gain = 1.0
        self.static: dict[int, float] = {}
        """The scale to keep, by the id of each scaler that was made static."""
        self._policy: Value = None
        """What the scaler key was turned to last."""

    def turn(self, request: Request) -> Notice | None:
        """Do what is asked, and say what was done or why not."""
        if request.knob == controls.DTYPE.name:
            return self._dtype(request.value)
        if request.knob == controls.SCALER.name:
            return self._scaler(request.value)
        if request.knob == controls.SCALE.name:
            return self._scale(request.value)
        if request.knob == controls.TARGET_GAIN.name:
            return self._target_gain(request.value)
        if request.knob == controls.LOSS_GAIN.name:
            return self._loss_gain(request.value)
        if request.knob == controls.INJECT.name:
            return self._inject()
        if request.knob == controls.EXPLAIN.name:
            return self._loop.stepping.explain(request.value)
        return None

    def start(self, request: Request) -> None:
        """Turn a knob before the first step, when nothing is known of the loop yet."""
        gain = _gain(request.value)
        if request.knob == controls.DTYPE.name and request.value in DTYPES:
            self._loop.autocast.override = str(request.value)
        elif request.knob == controls.TARGET_GAIN.name and gain is not None:
            self.target_gain = gain
        elif request.knob == controls.LOSS_GAIN.name and gain is not None:
            self.loss_gain = gain
        elif request.knob == controls.SCALER.name and request.value in controls.SCALER.choices:
            self._policy = request.value

    def adopted(self, scaler: GradScaler) -> None:
        """A scaler that comes later is under the same policy."""
        if self._policy is not None:
            self._put(scaler, self._policy)

    def new_scale(self, scaler: GradScaler, asked: Any) -> Any:
        """What to call ``update`` with: the scale to keep, or what the loop asks for itself."""
        static = self.static.get(id(scaler))
        if static is None:
            return asked
        if asked is not None:
            self.static[id(scaler)] = float(asked)
            return asked
        return static

    def scaler_info(self) -> ScalerInfo | None:
        """What there is to say of the loop's scaler."""
        scaler, mode = self._loop.scaler, self.scaler_mode()
        return None if scaler is None or mode is None else describe(scaler, mode)

    def scaler_mode(self) -> str | None:
        """ "dynamic", "static", "off", or None when the loop has no scaler."""
        return self.mode_of(self._loop.scaler)

    def mode_of(self, scaler: GradScaler | None) -> str | None:
        """The same of one scaler."""
        if scaler is None:
            return None
        if not scaler.is_enabled():
            return "off"
        return "static" if id(scaler) in self.static else "dynamic"

    def _dtype(self, value: Value) -> Notice:
        autocast = self._loop.autocast
        if not autocast.seen:
            return _no(
                controls.DTYPE,
                None,
                "this loop does not use torch.autocast, so there is no dtype to switch",
            )
        if value is None:
            autocast.override = None
            return Notice("autocast lowers to what the script says again", "dtype", None)
        if value not in DTYPES:
            return _no(controls.DTYPE, autocast.override, f"there is no dtype {value!r}")
        autocast.override = str(value)
        return Notice(f"autocast lowers to {value} from now on", "dtype", value)

    def _scaler(self, value: Value) -> Notice:
        scaler = self._loop.scaler
        if scaler is None:
            return _no(
                controls.SCALER,
                None,
                "this loop has no GradScaler, so there is no scaler to switch",
            )
        if value not in controls.SCALER.choices:
            return _no(controls.SCALER, self.scaler_mode(), f"there is no scaler {value!r}")
        for each in self._loop.scalers():
            self._put(each, value)
        if value != "off" and not scaler.is_enabled():
            return _no(controls.SCALER, "off", "this scaler cannot be switched on on this device")
        self._policy = value
        return Notice(self._scaler_words(scaler), "scaler", value)

    def _put(self, scaler: GradScaler, policy: Value) -> None:
        if policy != "static":
            self.static.pop(id(scaler), None)
        if switch(scaler, on=policy != "off") and policy == "static":
            self.static[id(scaler)] = _scale_of(scaler)

    def _scaler_words(self, scaler: GradScaler) -> str:
        mode = self.scaler_mode()
        if mode == "off":
            return "the scaler is off: gradients come as they are"
        if mode == "static":
            return f"the scale stays at {_scale_of(scaler):g}"
        return "the scaler adapts its scale again"

    def _scale(self, factor: Value) -> Notice:
        scaler = self._loop.scaler
        if scaler is None or not scaler.is_enabled():
            return _no(controls.SCALE, None, "no scaler is on, so there is no scale to move")
        if not isinstance(factor, (int, float)) or not factor > 0:
            return _no(controls.SCALE, None, f"a scale cannot be multiplied by {factor!r}")
        moved = _scale_of(scaler) * factor
        if not SMALLEST_SCALE <= moved <= LARGEST_SCALE:
            return _no(
                controls.SCALE, None, f"a scale of {moved:g} is beyond what float32 can hold"
            )
        for each in self._loop.scalers():
            if each.is_enabled():
                private.multiply_scale(each, factor)
                if id(each) in self.static:
                    self.static[id(each)] = _scale_of(each)
        return Notice(f"the scale is moved to {moved:g}", "scale", None)

    def _target_gain(self, value: Value) -> Notice:
        gain = _gain(value)
        if gain is None:
            return _no(controls.TARGET_GAIN, self.target_gain, f"{value!r} is no gain")
        if not self.target_gain_read:
            return _no(
                controls.TARGET_GAIN,
                1.0,
                "this loop does not multiply its targets by watch.target_gain; "
                "the loss gain works on any loop",
            )
        self.target_gain = gain
        return Notice(f"targets are multiplied by {gain:g}", "target_gain", gain)

    def _loss_gain(self, value: Value) -> Notice:
        gain = _gain(value)
        if gain is None:
            return _no(controls.LOSS_GAIN, self.loss_gain, f"{value!r} is no gain")
        self.loss_gain = gain
        return Notice(f"the loss is multiplied by {gain:g} before backward", "loss_gain", gain)

    def _inject(self) -> Notice:
        scaler = self._loop.scaler
        if scaler is None or not scaler.is_enabled():
            return _no(
                controls.INJECT,
                None,
                "no scaler is on to catch it: one inf would ruin the weights for good",
            )
        self._loop.reader.inject = True
        return Notice("one inf goes into the gradients of the next step")


def _scale_of(scaler: GradScaler) -> float:
    scale = scale_in_force(scaler)
    return float(scale[0]) if scale else (private.initial_scale(scaler) or 1.0)


def _gain(value: Value) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if value > 0 and math.isfinite(value) else None


def _no(knob: controls.Knob, value: Value, why: str) -> Notice:
    return Notice(why, knob.name, value, refused=True)
