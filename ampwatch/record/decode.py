"""JSON to records: whatever a line holds, the answer is a record or a RecordError."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ampwatch.errors import RecordError
from ampwatch.record.shapes import (
    LARGEST,
    SCHEMA,
    SPECIAL,
    Exponents,
    Notice,
    Record,
    RunEnd,
    RunInfo,
    ScalerInfo,
    StepRecord,
    TensorStats,
)

_T = TypeVar("_T")


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
        raise RecordError(f"unknown type of record: {_short(kind)}")
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


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    if type(value) is str and value in SPECIAL:
        return SPECIAL[value]
    raise TypeError(f"{_short(value)} is not a number")


def _time(value: Any) -> float:
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a time")
    return number


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{_short(value)} is not a whole number")
    if not -LARGEST <= value <= LARGEST:
        raise ValueError("a whole number beyond 64 bits")
    return value


def _count(value: Any) -> int:
    if _integer(value) < 0:
        raise ValueError(f"{value} is negative")
    return int(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{_short(value)} is not text")
    if value.isascii():
        return value
    # JSON can spell half a surrogate pair; nothing that prints could take it.
    return value.encode("utf-8", "backslashreplace").decode()


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{_short(value)} is neither true nor false")
    return value


def _short(value: Any) -> str:
    """The value for a message: it may be anything, of any length and depth."""
    return (
        repr(value)[:60] if isinstance(value, (str, float, bool)) else f"a {type(value).__name__}"
    )


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{_short(value)} is not a list")
    return tuple(map(_text, value))


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{_short(value)} is not a list")
    return tuple(map(_number, value))


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{_short(value)} is not a list")
    return tuple(map(_integer, value))


def _metrics(value: Any) -> Mapping[str, float]:
    if not isinstance(value, dict):
        raise TypeError(f"{_short(value)} is not an object")
    return {_text(name): _number(item) for name, item in value.items()}


_STEP_READERS = {
    "step": _count,
    "time": _time,
    "loss": _number,
    "losses": _count,
    "scale": _number,
    "growth_tracker": _integer,
    "skipped": _truth,
    "grad_norm": _number,
    "clipped_norm": _number,
    "grad_max": _number,
    "nonfinite_tensors": _count,
    "nonfinite_values": _count,
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


# One is read every step: where a field goes, the type that needs no further look, and the reader.
_PLAIN: dict[Callable[[Any], Any], type] = {
    _number: float,
    _truth: bool,
    _text: str,
    _integer: int,
    _count: int,
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
    if _integer(schema) > SCHEMA:
        raise ValueError(
            f"schema {schema} is newer than the {SCHEMA} this version reads; update ampwatch"
        )
    return RunInfo(
        name=_text(body["name"]),
        started=_time(body["started"]),
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
        raise TypeError(f"{_short(body)} is not an object")
    return ScalerInfo(
        mode=_text(body["mode"]),
        init_scale=_optional(body, "init_scale", _number),
        growth_factor=_optional(body, "growth_factor", _number),
        backoff_factor=_optional(body, "backoff_factor", _number),
        growth_interval=_optional(body, "growth_interval", _integer),
    )


def _tensors(body: Mapping[str, Any]) -> TensorStats:
    stats = TensorStats(
        step=_count(body["step"]),
        name=_texts(body["name"]),
        norm=_numbers(body["norm"]),
        max=_numbers(body["max"]),
        zeros=_integers(body["zeros"]),
        nonfinite=_integers(body["nonfinite"]),
        size=_integers(body.get("size", [])),
        exponents=_rows_of_exponents(body.get("exponents")),
        scale=_optional(body, "scale", _number),
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


MOST_BINS = 4096
"""float64 has 2,098 exponents; a line that asks for more is no histogram of ours."""


def _rows_of_exponents(value: Any) -> tuple[Exponents, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise TypeError(f"{_short(value)} is not a list")
    return tuple(map(_exponents, value))


def _exponents(body: Any) -> Exponents:
    if not isinstance(body, dict):
        raise TypeError(f"{_short(body)} is not an object")
    first = _number(body["first"])
    counts = body["counts"]
    if not abs(first) <= MOST_BINS:  # NaN as well
        raise ValueError(f"{first} is not an exponent")
    if not isinstance(counts, list) or len(counts) > MOST_BINS:
        raise TypeError(f"{_short(counts)} is not a list of counts")
    return Exponents(
        first,
        tuple(map(_count, counts)),
        _count(body.get("zeros", 0)),
        _count(body.get("infinite", 0)),
        _count(body.get("nan", 0)),
    )


def _end(body: Mapping[str, Any]) -> RunEnd:
    return RunEnd(_text(body["status"]), _count(body["steps"]), _optional(body, "error", _text))


def _notice(body: Mapping[str, Any]) -> Notice:
    value = body.get("value")
    if not isinstance(value, (str, int, float, type(None))):
        raise TypeError(f"{_short(value)} is not a value of a knob")
    return Notice(
        text=_text(body["text"]),
        knob=_optional(body, "knob", _text),
        value=value,
        refused=_truth(body.get("refused", False)),
    )


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
