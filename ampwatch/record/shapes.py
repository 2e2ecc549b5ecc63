"""The records: plain numbers, no tensors. Absent means not measured, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from ampwatch.record.anatomy import StepAnatomy

SCHEMA = 1
LARGEST = 2**63 - 1
"""Whole numbers fit 64 bits: JSON readers and arrays take no larger ones."""
NO_METRICS: Mapping[str, float] = MappingProxyType({})


class StepRecord(NamedTuple):
    """One optimizer's step, taken or skipped.

    A named tuple because one is made every step: built by position it costs a tenth of a
    frozen dataclass. Several optimizers give one record each, with the same ``step``.
    """

    step: int
    """Counted from 0; grows when an optimizer that has already stepped steps again."""
    time: float
    """Seconds since the run started."""
    loss: float | None = None
    """Mean of the losses that were back-propagated for this step, without the scale."""
    losses: int | None = None
    """How many they were (accumulation, several losses)."""
    scale: float | None = None
    """The factor of GradScaler in force during this step's backward."""
    growth_tracker: int | None = None
    """Steps without an overflow since the scale last changed, before this step's update."""
    skipped: bool | None = None
    """Whether the scaler found inf or NaN and dropped the step, from found_inf."""
    grad_norm: float | None = None
    """L2 norm of all gradients of the optimizer, divided by the scale, before clipping."""
    clipped_norm: float | None = None
    """The same after clipping."""
    grad_max: float | None = None
    """Largest gradient magnitude, divided by the scale."""
    nonfinite_tensors: int | None = None
    """Parameter gradients with at least one inf or NaN."""
    nonfinite_values: int | None = None
    """How many elements of them are inf or NaN."""
    origin: str | None = None
    """The non-finite parameter gradient that was computed first in backward."""
    dtype: str | None = None
    """What autocast lowered to ("float16", "bfloat16"), or "float32"."""
    scaler: str | None = None
    """"dynamic", "static" or "off"; absent when the loop has no scaler."""
    lr: float | None = None
    """Learning rate of the optimizer's first parameter group."""
    optimizer: str | None = None
    """Its class name, with its number from the second one on: "Adam", "Adam 2"."""
    target_gain: float | None = None
    loss_gain: float | None = None
    overhead: float | None = None
    """Share of the time since the last record that was spent in ampwatch."""
    facts: tuple[str, ...] = ()
    """What only the hook can see; rules interpret it."""
    metrics: Mapping[str, float] = NO_METRICS
    """Whatever the loop handed to ``watch.log``."""


@dataclass(frozen=True, slots=True)
class ScalerInfo:
    """The settings of a GradScaler."""

    mode: str
    init_scale: float | None = None
    growth_factor: float | None = None
    backoff_factor: float | None = None
    growth_interval: int | None = None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known about a run. A later one replaces an earlier one: a script names its model
    long after it has been started."""

    name: str
    started: float
    """Seconds since the epoch."""
    argv: tuple[str, ...] = ()
    ampwatch: str | None = None
    torch: str | None = None
    python: str | None = None
    device: str | None = None
    rank: int = 0
    world_size: int = 1
    parameters: int | None = None
    """How many values are trained."""
    tensors: tuple[str, ...] = ()
    """Parameter names in backward order: nearest the loss first."""
    scaler: ScalerInfo | None = None
    total_steps: int | None = None
    """How many optimizer steps are planned, where the loop says so."""


@dataclass(frozen=True, slots=True)
class Exponents:
    """How the magnitudes of one gradient lie over the powers of two.

    ``counts[k]`` values have a magnitude of at least 2^(first + k) and below 2^(first + k + 1).
    """

    first: float
    """A whole number, unless the scale that was divided out is no power of two."""
    counts: tuple[int, ...]
    """The first and the last are not 0."""
    zeros: int = 0
    infinite: int = 0
    nan: int = 0

    @property
    def seen(self) -> int:
        """How many values were looked at: all of the gradient, or a sample of a large one."""
        return sum(self.counts) + self.zeros + self.infinite + self.nan


@dataclass(frozen=True, slots=True)
class TensorStats:
    """Per-parameter figures of one detail step, true magnitudes (divided by the scale)."""

    step: int
    name: tuple[str, ...]
    norm: tuple[float, ...]
    max: tuple[float, ...]
    zeros: tuple[int, ...]
    nonfinite: tuple[int, ...]
    size: tuple[int, ...] = ()
    exponents: tuple[Exponents, ...] = ()
    """Of true magnitudes as well; empty where they were not measured."""
    scale: float | None = None
    """The factor of GradScaler in force at this step: times this is what float16 had to hold."""


@dataclass(frozen=True, slots=True)
class ActivationStats:
    """The gradients that flow between the modules at one detail step, true magnitudes (divided by
    the scale), as backward computes them: in the dtype that autocast chose.

    A row is the output of a module with parameters of its own, or, where ``after`` says so, what
    is computed from there up to the next such module. The module nearest the loss comes first.
    """

    step: int
    name: tuple[str, ...]
    """Modules as the user's code names them; "" is the model itself."""
    after: tuple[bool, ...]
    dtype: tuple[str, ...]
    max: tuple[float, ...]
    nonfinite: tuple[int, ...]
    size: tuple[int, ...]
    exponents: tuple[Exponents, ...] = ()
    scale: float | None = None
    """The factor of GradScaler in force at this step: times this is what the dtype had to hold."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended: "finished", "failed" or "stopped"."""

    status: str
    steps: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence from the training side for the person at the screen; not part of a log.

    ``knob`` and ``value`` say which knob has which value now: the answer to a request.
    """

    text: str
    knob: str | None = None
    value: Any = None
    refused: bool = False


Record: TypeAlias = (
    StepRecord | RunInfo | TensorStats | ActivationStats | StepAnatomy | RunEnd | Notice
)

SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""How numbers that JSON lacks are spelled."""
KIND_OF: dict[type, str] = {
    StepRecord: "step",
    RunInfo: "run",
    TensorStats: "tensors",
    ActivationStats: "activations",
    StepAnatomy: "anatomy",
    RunEnd: "end",
    Notice: "notice",
}
"""The value of ``type`` in a line."""
