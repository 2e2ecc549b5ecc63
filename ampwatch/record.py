"""What crosses from a training process to everything else: plain numbers, no tensors.

A record is one JSON object on one line, in the log and on the way to the dashboard alike.
Absent means not measured, never 0. JSON has no NaN and no infinities: they are the strings
``"nan"``, ``"inf"`` and ``"-inf"``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ampwatch.errors import RecordError

SCHEMA = 1
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
class TensorStats:
    """Per-parameter figures of one detail step, true magnitudes (divided by the scale)."""

    step: int
    name: tuple[str, ...]
    norm: tuple[float, ...]
    max: tuple[float, ...]
    zeros: tuple[int, ...]
    nonfinite: tuple[int, ...]
    size: tuple[int, ...] = ()


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


Record: TypeAlias = StepRecord | RunInfo | TensorStats | RunEnd | Notice

_STEP_FIELDS = StepRecord._fields
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode


def _plain(value: Any) -> Any:
    """The value as strict JSON can carry it."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "nan" if value != value else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def to_json(record: Record) -> str:
    """The record as one line of strict JSON, without the line feed."""
    if isinstance(record, StepRecord):
        line: dict[str, Any] = {"type": "step"}
        for name, value in zip(_STEP_FIELDS, record, strict=True):
            if value is not None:
                line[name] = value
        if not record.facts:
            del line["facts"]
        if record.metrics:
            line["metrics"] = _plain(record.metrics)
        else:
            del line["metrics"]
        try:
            return _encode(line)
        except ValueError:  # a NaN or an infinity: rare, so looked for only then
            return _encode(_plain(line))
    body: dict[str, Any] = {
        name: getattr(record, name) for name in record.__dataclass_fields__
    }
    scaler = body.get("scaler")
    if isinstance(scaler, ScalerInfo):
        body["scaler"] = _present({n: getattr(scaler, n) for n in ScalerInfo.__dataclass_fields__})
    kind = _KIND_OF[type(record)]
    head: dict[str, Any] = {"type": kind}
    if kind == "run":
        head["schema"] = SCHEMA
    return _encode(_plain({**head, **_present(body)}))


def from_json(line: str) -> Record:
    """The record that a line holds.

    Fields this version does not know are left out, so that an older ampwatch reads a newer log.

    Raises:
        RecordError: the line is not JSON, not a record, or a field has the wrong kind of value.
    """
    try:
        body = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not a line of JSON: {error}") from None
    if not isinstance(body, dict):
        raise RecordError("a record is a JSON object")
    kind = body.get("type")
    maker = _MAKERS.get(kind) if isinstance(kind, str) else None
    if maker is None:
        raise RecordError(f"unknown type of record: {str(kind)[:40]!r}")
    try:
        return maker(body)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"a {kind} record with a wrong or missing field: {error}") from None


def _present(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None and value != ()}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _number(value: Any) -> float:
    if isinstance(value, str):
        return _SPECIAL[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return tuple(map(_text, value))


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return tuple(map(_number, value))


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return tuple(map(_integer, value))


def _metrics(value: Any) -> Mapping[str, float]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return {name: _number(item) for name, item in value.items()}


_STEP_READERS = {
    "step": _integer,
    "time": _number,
    "loss": _number,
    "losses": _integer,
    "scale": _number,
    "growth_tracker": _integer,
    "skipped": _truth,
    "grad_norm": _number,
    "clipped_norm": _number,
    "grad_max": _number,
    "nonfinite_tensors": _integer,
    "nonfinite_values": _integer,
    "origin": _text,
    "dtype": _text,
    "scaler": _text,
    "lr": _number,
    "optimizer": _text,
    "target_gain": _number,
    "loss_gain": _number,
    "overhead": _number,
    "facts": _texts,
    "metrics": _metrics,
}


def _step(body: Mapping[str, Any]) -> StepRecord:
    read = _STEP_READERS
    return StepRecord(**{name: read[name](value) for name, value in body.items() if name in read})


def _run(body: Mapping[str, Any]) -> RunInfo:
    schema = body.get("schema", SCHEMA)
    if _integer(schema) > SCHEMA:
        raise ValueError(
            f"schema {schema} is newer than the {SCHEMA} this version reads; update ampwatch"
        )
    return RunInfo(
        name=_text(body["name"]),
        started=_number(body["started"]),
        argv=_texts(body.get("argv", [])),
        ampwatch=_optional(body, "ampwatch", _text),
        torch=_optional(body, "torch", _text),
        python=_optional(body, "python", _text),
        device=_optional(body, "device", _text),
        rank=_integer(body.get("rank", 0)),
        world_size=_integer(body.get("world_size", 1)),
        parameters=_optional(body, "parameters", _integer),
        tensors=_texts(body.get("tensors", [])),
        scaler=_optional(body, "scaler", _scaler),
        total_steps=_optional(body, "total_steps", _integer),
    )


def _scaler(body: Any) -> ScalerInfo:
    if not isinstance(body, dict):
        raise TypeError(f"{body!r} is not an object")
    return ScalerInfo(
        mode=_text(body["mode"]),
        init_scale=_optional(body, "init_scale", _number),
        growth_factor=_optional(body, "growth_factor", _number),
        backoff_factor=_optional(body, "backoff_factor", _number),
        growth_interval=_optional(body, "growth_interval", _integer),
    )


def _tensors(body: Mapping[str, Any]) -> TensorStats:
    stats = TensorStats(
        step=_integer(body["step"]),
        name=_texts(body["name"]),
        norm=_numbers(body["norm"]),
        max=_numbers(body["max"]),
        zeros=_integers(body["zeros"]),
        nonfinite=_integers(body["nonfinite"]),
        size=_integers(body.get("size", [])),
    )
    columns = (stats.norm, stats.max, stats.zeros, stats.nonfinite, *([stats.size] * bool(stats.size)))
    if any(len(column) != len(stats.name) for column in columns):
        raise ValueError("its columns differ in length")
    return stats


def _end(body: Mapping[str, Any]) -> RunEnd:
    return RunEnd(
        _text(body["status"]), _integer(body["steps"]), _optional(body, "error", _text)
    )


def _notice(body: Mapping[str, Any]) -> Notice:
    return Notice(
        text=_text(body["text"]),
        knob=_optional(body, "knob", _text),
        value=body.get("value"),
        refused=_truth(body.get("refused", False)),
    )


_KIND_OF: dict[type, str] = {
    RunInfo: "run",
    TensorStats: "tensors",
    RunEnd: "end",
    Notice: "notice",
}
_T = TypeVar("_T")


def _optional(body: Mapping[str, Any], name: str, read: Callable[[Any], _T]) -> _T | None:
    value = body.get(name)
    return None if value is None else read(value)


_MAKERS: dict[str, Callable[[Mapping[str, Any]], Record]] = {
    "step": _step,
    "run": _run,
    "tensors": _tensors,
    "end": _end,
    "notice": _notice,
}
