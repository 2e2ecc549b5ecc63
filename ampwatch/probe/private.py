"""Everything ampwatch needs of torch that torch does not promise to keep.

Each function says what it reads. Where a torch version has moved it, the function raises
:class:`Unsupported` with a clear sentence; the hook then reports once and detaches.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch import overrides as _overrides
from torch.amp import grad_scaler as _grad_scaler
from torch.amp.autocast_mode import autocast
from torch.nn.utils import clip_grad as _clip_grad
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext as _DeviceContext


class Unsupported(RuntimeError):
    """This version of torch keeps something elsewhere."""

    def __init__(self, what: str) -> None:
        super().__init__(f"torch {torch.__version__} does not have {what} where ampwatch looks")


# GradScaler: its state has no public reading that does not wait for the device.


def scale_tensor(scaler: torch.amp.GradScaler) -> Tensor | None:
    """The scale as a tensor of no dimension on the device; None before the first ``scale()``."""
    return getattr(scaler, "_scale", None)


def growth_tracker_tensor(scaler: torch.amp.GradScaler) -> Tensor | None:
    """Steps without an overflow since the scale changed, int32 of no dimension, on the device."""
    return getattr(scaler, "_growth_tracker", None)


def initial_scale(scaler: torch.amp.GradScaler) -> float | None:
    """The scale it starts with; None when it was made disabled."""
    value = getattr(scaler, "_init_scale", None)
    return None if value is None else float(value)


def found_infs(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """found_inf of an optimizer, one float32 a device, 0 or 1; empty before its check.

    To be read before ``update()``, which adds the flags of all optimizers into the first one.
    """
    state = _per_optimizer(scaler).get(id(optimizer))
    return [] if state is None else list(state["found_inf_per_device"].values())


def is_unscaled(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
    """Whether ``unscale_`` has divided this optimizer's gradients since the last ``update``."""
    state = _per_optimizer(scaler).get(id(optimizer))
    return state is not None and state["stage"] is not _grad_scaler.OptState.READY


def _per_optimizer(scaler: torch.amp.GradScaler) -> dict[int, dict[str, Any]]:
    states: dict[int, dict[str, Any]] | None = getattr(scaler, "_per_optimizer_states", None)
    if states is None:
        if scaler.is_enabled():
            raise Unsupported("GradScaler._per_optimizer_states")
        return {}
    return states


def set_enabled(scaler: torch.amp.GradScaler, enabled: bool) -> bool:
    """Switch scaling on or off as the constructor's ``enabled`` would; whether it worked.

    A scaler made disabled has no settings: it then gets the constructor's own defaults.
    """
    if not hasattr(scaler, "_enabled"):
        raise Unsupported("GradScaler._enabled")
    if enabled and not hasattr(scaler, "_init_scale"):
        torch.amp.GradScaler.__init__(scaler, scaler._device, enabled=True)
        return bool(scaler._enabled)
    scaler._enabled = enabled
    return True


def multiply_scale(scaler: torch.amp.GradScaler, factor: float) -> bool:
    """Multiply the scale where it lies, without a copy to the host; False before its first use."""
    scale = scale_tensor(scaler)
    if scale is None:
        init = initial_scale(scaler)
        if init is None:
            return False
        scaler._init_scale = init * factor
        return True
    scale.mul_(factor)
    return True


# Autocast: the context manager's own fields, needed to enter it with another dtype.


def autocast_fields(context: autocast) -> tuple[torch.dtype | None, bool, str]:
    """(dtype it lowers to, whether it is on, device type) of an autocast context."""
    try:
        return context.fast_dtype, context._enabled, context.device
    except AttributeError:
        raise Unsupported("autocast.fast_dtype, _enabled and device") from None


def autocast_active() -> bool:
    """Whether autocast is on just now, for any device."""
    read = getattr(torch._C, "_is_any_autocast_enabled", None)
    if read is None:
        raise Unsupported("torch._C._is_any_autocast_enabled")
    return bool(read())


@contextmanager
def autocast_as(context: autocast, dtype: torch.dtype | None) -> Iterator[None]:
    """Inside the block the context enters with ``dtype``, or switched off for None."""
    saved = context.fast_dtype, context._enabled
    if dtype is None:
        context._enabled = False
    else:
        context.fast_dtype, context._enabled = dtype, True
    try:
        yield
    finally:
        context.fast_dtype, context._enabled = saved


# Gradients.


def foreach_norm(
    tensors: list[Tensor], dtype: torch.dtype | None = None, order: float = 2.0
) -> list[Tensor]:
    """Norms of many tensors in one fused pass, each of no dimension on its own device.

    Args:
        tensors: of one device, and of one dtype for the speed of it.
        order: 2, or inf for the largest magnitude; inf and NaN come through.
    """
    norm = getattr(torch, "_foreach_norm", None)
    if norm is None:
        raise Unsupported("torch._foreach_norm")
    return list(norm(tensors, order, dtype=dtype))


def stored_values(tensor: Tensor) -> Tensor:
    """The values of a sparse tensor as they are stored, repeated entries apart."""
    read = getattr(tensor, "_values", None)
    if read is None:
        raise Unsupported("Tensor._values")
    values: Tensor = read()
    return values


def sequence_number(node: Any) -> int:
    """When this node of an autograd graph was made; backward runs the latest ones first."""
    try:
        number: int = node._sequence_nr()
    except AttributeError:
        raise Unsupported("Node._sequence_nr") from None
    return number


def made_in(node: Any) -> torch.dtype | None:
    """The dtype of what this node's operation made; None where torch does not tell."""
    made = getattr(node, "_input_metadata", None)
    return made[0].dtype if made else None


def compiled_autograd() -> bool:
    """Whether backward passes are compiled; hooks on nodes would be compiled in each time."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "compiled_autograd_enabled", False))


def times_changed(tensor: Tensor) -> int:
    """How often a tensor was changed in place; reads ``_version``."""
    return int(tensor._version)


# Clipping: callers hold their own reference to clip_grad_norm_, but all of them go through this.

ClipFunction = Callable[..., None]
_CLIP_NAME = "_clip_grads_with_norm_"


def clip_function() -> ClipFunction:
    """What ``clip_grad_norm_`` and ``clip_grads_with_norm_`` scale the gradients with."""
    function: ClipFunction | None = getattr(_clip_grad, _CLIP_NAME, None)
    if function is None:
        raise Unsupported(f"torch.nn.utils.clip_grad.{_CLIP_NAME}")
    return function


def set_clip_function(function: ClipFunction) -> None:
    setattr(_clip_grad, _CLIP_NAME, function)


def saved_tensors(node: Any) -> dict[str, Tensor]:
    """What a node of an autograd graph keeps for backward, by name; reads ``_saved_…``.

    A tensor that was changed in place since, or was freed, is left out.
    """
    found = {}
    for attribute in _saved_by(node.__class__):
        try:
            value = getattr(node, attribute)
        except RuntimeError:
            continue
        if isinstance(value, Tensor) and value.is_floating_point():
            found[attribute.removeprefix("_saved_")] = value.detach()
    return found


@functools.cache
def _saved_by(kind: type) -> list[str]:
    """What nodes of this type keep; each operation has a type of its own."""
    return [name for name in dir(kind) if name.startswith("_saved_")]


def factors_kept(node: Any) -> list[Tensor]:
    """The plain numbers by which a multiplication multiplied, of any dtype; what somebody's hook
    has packed is left alone."""
    found = []
    for name in ("other", "self"):
        packed = getattr(getattr(node, f"_raw_saved_{name}", None), "unpack_hook", None)
        kept = None if packed is not None else getattr(node, f"_saved_{name}", None)
        if isinstance(kept, Tensor) and kept.is_cpu and not kept.dim():
            found.append(kept)
    return found


def unscales_itself(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the scaler hands it the scale and found_inf, as to a fused optimizer, whose kernel
    divides, and leaves the weights alone where there is inf or NaN."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


# Function modes: they see what the script's code calls. The stack belongs to one thread.

_stack: Any = _overrides


def insert_mode(mode: TorchFunctionMode) -> None:
    """Put a mode below those that are there, which leave in their own order whatever we do;
    only a device context has to stay at the very bottom."""
    modes = _all_popped()
    try:
        if modes and isinstance(modes[0], _DeviceContext):
            _stack._push_mode(modes.pop(0))
        _stack._push_mode(mode)
    finally:
        for each in modes:
            _stack._push_mode(each)


def remove_mode(mode: TorchFunctionMode) -> bool:
    """Take a mode out of the stack from wherever it is; whether it was there."""
    modes = _all_popped()
    for each in modes:
        if each is not mode:
            _stack._push_mode(each)
    return any(each is mode for each in modes)


def _all_popped() -> list[TorchFunctionMode]:
    """Empties the stack; the lowest mode comes first."""
    try:
        size = _stack._len_torch_function_stack()
        return [_stack._pop_mode() for _ in range(size)][::-1]
    except AttributeError:
        raise Unsupported("torch.overrides._pop_mode") from None


def compiled_code() -> bool:
    """Whether torch.compile has made code for anything in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None) or {}
    return bool("stats" in counters and counters["stats"]["unique_graphs"])


def kept_tensors(node: Any) -> list[Tensor]:
    """Every tensor that a node of an autograd graph keeps for backward, whatever its kind.

    What was freed, or was changed in place since, is left out.
    """
    found: list[Tensor] = []
    names = _saved_by(node.__class__)
    for name in names if names else ("saved_tensors",):  # the latter: torch.autograd.Function
        try:
            value = getattr(node, name, None)
        except RuntimeError:
            continue
        values = value if isinstance(value, (tuple, list)) else (value,)
        found += [each for each in values if isinstance(each, Tensor)]
    return found
