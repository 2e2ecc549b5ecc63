"""One training step taken apart: what was computed in which dtype, and with which numbers.

Gradients are told as they came, times the scale, unless a field says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_OPERATIONS = 400
"""So many are recorded; a deep model repeats its blocks."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the forward pass, as the script's code calls it, and the gradient that
    came back to its output."""

    name: str
    """As in torch.nn.functional or on a tensor: "linear", "softmax", "add"."""
    module: str | None = None
    """Where it was called: "encoder.layers.3.linear1"; None outside of every module."""
    inputs: tuple[str, ...] = ()
    """dtypes of the floating-point tensors it was handed, without the weights."""
    weights: tuple[str, ...] = ()
    """dtypes of the parameters it was handed."""
    output: str | None = None
    """dtype of its (first) result."""
    largest: float | None = None
    """Largest finite magnitude of the result."""
    nonfinite: int | None = None
    """How many of its values are inf or NaN."""
    size: int | None = None
    """How many values it has."""
    gradient: str | None = None
    """dtype of the gradient that came back to the result; None if none came."""
    gradient_largest: float | None = None
    """Largest finite magnitude of that gradient."""
    gradient_nonfinite: int | None = None
    """How many of its values are inf or NaN."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A few values of one parameter, at each stage of the step; all columns in the same order."""

    name: str
    dtype: str
    """Of the weight."""
    gradient_dtype: str
    """Of its gradient."""
    shape: tuple[int, ...]
    """Of the weight."""
    index: tuple[int, ...]
    """Which values these are, counted along the flattened tensor."""
    scaled: tuple[float, ...]
    """The gradient as it came."""
    unscaled: tuple[float, ...]
    """The gradient divided by the scale; the same as ``scaled`` where there is no scaler."""
    before: tuple[float, ...]
    """The weights before the step."""
    after: tuple[float, ...]
    """The weights after it, or after it was skipped."""
    clipped: tuple[float, ...] = ()
    """The gradient after clipping; empty where nothing clips."""
    largest: float | None = None
    """Largest finite magnitude in the whole gradient as it came."""
    zeros: int = 0
    """How many values of the whole gradient are 0."""
    nonfinite: int = 0
    """How many of them are inf or NaN."""
    flushed: int | None = None
    """How many values that are not 0 float16 would make 0 if the gradient carried no scale."""

    def place(self, which: int) -> tuple[int, ...]:
        """The index of one of the values in the tensor, one number a dimension."""
        left, place = self.index[which], []
        for length in reversed(self.shape):
            left, position = divmod(left, max(length, 1))
            place.append(position)
        return tuple(reversed(place))


@dataclass(frozen=True, slots=True)
class StepAnatomy:
    """One step of one optimizer, taken apart because somebody asked for it."""

    step: int
    optimizer: str | None = None
    dtype: str | None = None
    """What autocast lowered to, or "float32"."""
    operations: tuple[Operation, ...] = ()
    """In the order in which they were called, up to the first backward pass."""
    left_out: int = 0
    """How many more there were than are recorded."""
    no_operations: str | None = None
    """Why there are none, in a sentence."""
    loss: float | None = None
    """The loss that was back-propagated first for this step, without the scale."""
    loss_dtype: str | None = None
    losses: int = 0
    """How many backward passes the step is made of."""
    scaler: str | None = None
    """"dynamic", "static" or "off"; None when the loop has no scaler."""
    loss_gain: float = 1.0
    """By what a key multiplies the loss before backward."""
    scale: float | None = None
    """The scale in force; None where no scale is in the gradients."""
    growth_tracker: int | None = None
    scaled_loss: float | None = None
    """What backward started from; None where the loss was not scaled."""
    tensors: int = 0
    """How many parameters have a gradient."""
    gradient_dtypes: tuple[str, ...] = ()
    """Those that parameter gradients have."""
    gradient_largest: float | None = None
    """Largest finite magnitude of all parameter gradients as they came."""
    nonfinite_tensors: int = 0
    """Parameter gradients with inf or NaN."""
    nonfinite_values: int = 0
    """How many of their values are inf or NaN."""
    origin: str | None = None
    """The first of them in the order of backward."""
    injected: bool = False
    """A key has put one inf into the gradients."""
    followed: Followed | None = None
    found_inf: float | None = None
    """What the scaler's check found: 0 or 1; None where no scaler looked."""
    clip_norm: float | None = None
    """The norm that clipping measured; None where nothing clips."""
    clip_limit: float | None = None
    """The norm it clips to."""
    clipped_scaled: bool = False
    """It clipped gradients that still carried the scale."""
    stepped: bool | None = None
    """Whether the optimizer took its step."""
    fused: bool = False
    """The optimizer is called where there is inf or NaN too, and leaves the weights as they are."""
    lr: float | None = None
    scale_after: float | None = None
    """The scale after ``update``."""
    growth_tracker_after: int | None = None

    def infinite_at(self) -> Operation | None:
        """The operation at whose result inf or NaN first came up on the way back."""
        for operation in reversed(self.operations):
            if operation.gradient_nonfinite:
                return operation
        return None
