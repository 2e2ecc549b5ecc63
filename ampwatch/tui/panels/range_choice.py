"""Which gradients of which detail step the Range tab shows."""

from __future__ import annotations

from dataclasses import dataclass

from ampwatch.formats import Format
from ampwatch.record import ActivationStats, TensorStats
from ampwatch.run import Run
from ampwatch.run.ranges import Spread, fit, flow_of, spread_of


@dataclass(frozen=True, slots=True)
class Shown:
    """The gradients of one kind at one detail step."""

    step: int
    scale: float | None
    """In force at that step."""
    spread: Spread
    name: str | None
    """The parameter, or the module whose output it is; None for the whole model."""
    dtype: str | None = None
    """Of activation gradients; None for those of parameters."""
    hidden: str = ""
    """What to say of a later detail step that is not shown."""


def module_of(tensor: str | None) -> str | None:
    """The module that holds a parameter."""
    return None if tensor is None else tensor.rpartition(".")[0]


def choose(run: Run, tensor: str | None, flowing: bool) -> Shown | None:
    """What to show of a run: one parameter or the output of its module, or the whole model; the
    latest detail step, unless inf and NaN hide its values and there is an earlier one.

    Args:
        flowing: activation gradients in place of those of parameters.
    """
    latest: TensorStats | ActivationStats | None = run.tensors
    before: TensorStats | ActivationStats | None = run.finite_tensors
    if flowing:
        latest, before = run.activations, run.finite_activations
    now = None if latest is None else _shown(latest, tensor)
    if now is None or now.spread.nonfinite <= now.spread.usual or before is None:
        return now
    earlier = _shown(before, tensor, f"At step {now.step:,} inf and NaN hide the values.")
    return now if earlier is None else earlier


def real_headroom(run: Run, form: Format, scale: float | None) -> float | None:
    """How many doublings of the scale every gradient of the whole model can take; None where
    those of one kind were not seen, or not at the same step."""
    tensors, flow = run.finite_tensors, run.finite_activations
    if tensors is None or flow is None or tensors.step != flow.step:
        return None
    rooms = []
    for spread in (spread_of(tensors), flow_of(flow)[0]):
        room = None if spread is None else fit(spread, form, scale).headroom
        if room is None:
            return None
        rooms.append(room)
    return min(rooms)


def _shown(
    stats: TensorStats | ActivationStats, tensor: str | None, hidden: str = ""
) -> Shown | None:
    if isinstance(stats, TensorStats):
        spread = spread_of(stats, tensor)
        if spread is None:
            return None
        return Shown(stats.step, stats.scale, spread, tensor, None, hidden)
    module = module_of(tensor)
    spread, dtype = flow_of(stats, module)
    return None if spread is None else Shown(stats.step, stats.scale, spread, module, dtype, hidden)
