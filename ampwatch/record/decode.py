"""JSON to records: whatever a line holds, the answer is a record or a RecordError."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ampwatch.errors import RecordError
from ampwatch.record.anatomy_json import read_anatomy
from ampwatch.record.fields import (
    count,
    integer,
    integers,
    metrics,
    number,
    numbers,
    optional,
    short,
    text,
    texts,
    time,
    truth,
)
from ampwatch.record.shapes import (
    LARGEST,
    SCHEMA,
    ActivationStats,
    Exponents,
    Notice,
    Record,
    RunEnd,
    RunInfo,
    ScalerInfo,
    StepRecord,
    TensorStats,
)


def from_json(line: str) -> Record:
    """The record that a line holds.

    Fields this version does not know are left out, so that an older ampwatch reads a newer log.

    Raises:
        RecordError: the line is not JSON, not a record, or a field has the wrong kind of value.
    """
    try:
        line = line.strip()
        body, end = _parse(line)
        if end != len(line):
            raise ValueError(f"something follows the object at character {end}")
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not a line of JSON: {str(error)[:200]}") from None
    if not isinstance(body, dict):
        raise RecordError("a record is a JSON object")
    kind = body.get("type")
    maker = _MAKERS.get(kind) if isinstance(kind, str) else None
    if maker is None:
        raise RecordError(f"unknown type of record: {short(kind)}")
    try:
        return maker(body)
    except KeyError as error:
        raise RecordError(f"a {kind} record without {error}") from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RecordError(f"a {kind} record with a wrong field: {str(error)[:200]}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Made once: json.loads with an argument of ours would make a decoder for each line.
_parse = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


_STEP_READERS = {
    "step": count,
    "time": time,
    "loss": number,
    "losses": count,
    "scale": number,
    "growth_tracker": integer,
    "skipped": truth,
    "grad_norm": number,
    "clipped_norm": number,
    "grad_max": number,
    "nonfinite_tensors": count,
    "nonfinite_values": count,
    "origin": text,
    "dtype": text,
    "scaler": text,
    "lr": number,
    "optimizer": text,
    "target_gain": number,
    "loss_gain": number,
    "overhead": number,
    "facts": texts,
    "metrics": metrics,
}


# One is read every step: where a field goes, the type that needs no further look, and the reader.
_PLAIN: dict[Callable[[Any], Any], type] = {
    number: float,
    truth: bool,
    text: str,
    integer: int,
    count: int,
}
_STEP_FIELDS: dict[str, tuple[int, type | None, Callable[[Any], Any]]] = {
    name: (slot, _PLAIN.get(read), read) for slot, (name, read) in enumerate(_STEP_READERS.items())
}
_NOTHING = [StepRecord._field_defaults.get(name) for name in StepRecord._fields]


def _step(body: Mapping[str, Any]) -> StepRecord:
    values = _NOTHING.copy()
    for name, value in body.items():
        field = _STEP_FIELDS.get(name)
        if field is not None and value is not None:
            slot, plain, read = field
            kind = type(value)
            # Nearly every value passes here without a call, which is half the time of reading it.
            if (
                kind is not plain
                or (kind is int and not 0 <= value <= LARGEST)
                or (kind is str and not value.isascii())
            ):
                value = read(value)
            values[slot] = value
    if values[0] is None or values[1] is None:
        raise KeyError("step" if values[0] is None else "time")
    return StepRecord._make(values)


def _run(body: Mapping[str, Any]) -> RunInfo:
    schema = body.get("schema", SCHEMA)
    if integer(schema) > SCHEMA:
        raise ValueError(
            f"schema {schema} is newer than the {SCHEMA} this version reads; update ampwatch"
        )
    return RunInfo(
        name=text(body["name"]),
        started=time(body["started"]),
        argv=texts(body.get("argv", [])),
        ampwatch=optional(body, "ampwatch", text),
        torch=optional(body, "torch", text),
        python=optional(body, "python", text),
        device=optional(body, "device", text),
        rank=integer(body.get("rank", 0)),
        world_size=integer(body.get("world_size", 1)),
        parameters=optional(body, "parameters", integer),
        tensors=texts(body.get("tensors", [])),
        scaler=optional(body, "scaler", _scaler),
        total_steps=optional(body, "total_steps", integer),
    )


def _scaler(body: Any) -> ScalerInfo:
    if not isinstance(body, dict):
        raise TypeError(f"{short(body)} is not an object")
    return ScalerInfo(
        mode=text(body["mode"]),
        init_scale=optional(body, "init_scale", number),
        growth_factor=optional(body, "growth_factor", number),
        backoff_factor=optional(body, "backoff_factor", number),
        growth_interval=optional(body, "growth_interval", integer),
    )


def _tensors(body: Mapping[str, Any]) -> TensorStats:
    stats = TensorStats(
        step=count(body["step"]),
        name=texts(body["name"]),
        norm=numbers(body["norm"]),
        max=numbers(body["max"]),
        zeros=integers(body["zeros"]),
        nonfinite=integers(body["nonfinite"]),
        size=integers(body.get("size", [])),
        exponents=_rows_of_exponents(body.get("exponents")),
        scale=optional(body, "scale", number),
    )
    columns: tuple[tuple[object, ...], ...] = (
        stats.norm,
        stats.max,
        stats.zeros,
        stats.nonfinite,
        *([stats.size] * bool(stats.size)),
        *([stats.exponents] * bool(stats.exponents)),
    )
    if any(len(column) != len(stats.name) for column in columns):
        raise ValueError("its columns differ in length")
    return stats


def _activations(body: Mapping[str, Any]) -> ActivationStats:
    stats = ActivationStats(
        step=count(body["step"]),
        name=texts(body["name"]),
        after=_truths(body["after"]),
        dtype=texts(body["dtype"]),
        max=numbers(body["max"]),
        nonfinite=_counts(body["nonfinite"]),
        size=_counts(body["size"]),
        exponents=_rows_of_exponents(body.get("exponents")),
        scale=optional(body, "scale", number),
    )
    columns: tuple[tuple[object, ...], ...] = (
        stats.after,
        stats.dtype,
        stats.max,
        stats.nonfinite,
        stats.size,
        *([stats.exponents] * bool(stats.exponents)),
    )
    if any(len(column) != len(stats.name) for column in columns):
        raise ValueError("its columns differ in length")
    return stats


def _truths(value: Any) -> tuple[bool, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{short(value)} is not a list")
    return tuple(map(truth, value))


def _counts(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{short(value)} is not a list")
    return tuple(map(count, value))


MOST_BINS = 4096
"""float64 has 2,098 exponents; a line that asks for more is no histogram of ours."""


def _rows_of_exponents(value: Any) -> tuple[Exponents, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise TypeError(f"{short(value)} is not a list")
    return tuple(map(_exponents, value))


def _exponents(body: Any) -> Exponents:
    if not isinstance(body, dict):
        raise TypeError(f"{short(body)} is not an object")
    first = number(body["first"])
    counts = body["counts"]
    if not abs(first) <= MOST_BINS:  # NaN as well
        raise ValueError(f"{first} is not an exponent")
    if not isinstance(counts, list) or len(counts) > MOST_BINS:
        raise TypeError(f"{short(counts)} is not a list of counts")
    return Exponents(
        first,
        tuple(map(count, counts)),
        count(body.get("zeros", 0)),
        count(body.get("infinite", 0)),
        count(body.get("nan", 0)),
    )


def _end(body: Mapping[str, Any]) -> RunEnd:
    return RunEnd(text(body["status"]), count(body["steps"]), optional(body, "error", text))


def _notice(body: Mapping[str, Any]) -> Notice:
    value = body.get("value")
    if not isinstance(value, (str, int, float, type(None))):
        raise TypeError(f"{short(value)} is not a value of a knob")
    return Notice(
        text=text(body["text"]),
        knob=optional(body, "knob", text),
        value=value,
        refused=truth(body.get("refused", False)),
    )


_MAKERS: dict[str, Callable[[Mapping[str, Any]], Record]] = {
    "step": _step,
    "run": _run,
    "tensors": _tensors,
    "activations": _activations,
    "anatomy": read_anatomy,
    "end": _end,
    "notice": _notice,
}
