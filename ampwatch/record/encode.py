"""Records to JSON, in the training loop: quick, and without ever raising."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from typing import Any

from ampwatch.record.anatomy import StepAnatomy
from ampwatch.record.anatomy_json import anatomy_body
from ampwatch.record.shapes import (
    KIND_OF,
    LARGEST,
    SCHEMA,
    SPECIAL,
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

_STEP_FIELDS = StepRecord._fields
_HEADS = tuple(f',"{name}":' for name in _STEP_FIELDS[:-2])
_quote = json.encoder.encode_basestring
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode


def strict(value: Any) -> Any:
    """The value as strict JSON can carry it: non-finite numbers become strings.

    Numbers that are not Python's own (numpy's, a tensor of one element) become so; anything else
    that JSON does not know becomes its text.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= LARGEST else strict(_as_float(value))
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "nan" if value != value else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [strict(item) for item in value]
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)  # numpy's own
    try:
        return strict(operator.index(value))
    except (TypeError, ValueError, RuntimeError):
        pass
    try:
        return strict(_as_float(value))
    except (TypeError, ValueError, RuntimeError):
        return str(value)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def to_json(record: Record) -> str:
    """The record as one line of strict JSON, without the line feed.

    Never raises: this runs in somebody's training loop. What JSON cannot carry is left out.
    """
    try:
        line = _step_line(record) if isinstance(record, StepRecord) else _line(record)
    except Exception:  # whatever a strange value does when it is looked at
        line = _bare_line(record)
    if not line.isascii():
        # A name may hold half a surrogate pair, which UTF-8 has no place for; JSON's escape has.
        line = line.encode("utf-8", "backslashreplace").decode()
    return line


def _step_line(record: StepRecord) -> str:
    """Put together by hand, in half the time the json module takes: it runs at every step."""
    parts = ['{"type":"step"']
    fields: tuple[Any, ...] = record
    for head, value in zip(_HEADS, fields, strict=False):  # facts and metrics come after
        if value is None:
            continue
        kind = type(value)
        if kind is float:
            # Subtracting itself leaves 0 of every number but inf and NaN.
            text = repr(value) if value - value == 0.0 else f'"{strict(value)}"'
        elif kind is str:
            text = _quote(value)
        elif kind is bool:
            text = "true" if value else "false"
        elif kind is int and -LARGEST <= value <= LARGEST:
            text = repr(value)
        else:
            text = _encode(strict(value))
        parts.append(head + text)
    if record.facts:
        parts.append(f',"facts":{_encode(strict(record.facts))}')
    if record.metrics:
        parts.append(f',"metrics":{_encode(_measured(record.metrics))}')
    parts.append("}")
    return "".join(parts)


def _measured(metrics: Mapping[str, float]) -> dict[str, Any]:
    """What of the metrics is a number: the reader takes nothing else."""
    numbers: dict[str, Any] = {}
    for name, value in metrics.items():
        number = value if type(value) is float else strict(value)
        if isinstance(number, bool):
            number = float(number)
        if isinstance(number, float) and number - number != 0:
            number = strict(number)
        if isinstance(number, (int, float)) or number in SPECIAL:
            numbers[str(name)] = number
    return numbers


def _line(record: RunInfo | TensorStats | ActivationStats | StepAnatomy | RunEnd | Notice) -> str:
    if isinstance(record, StepAnatomy):
        return _encode(strict({"type": KIND_OF[StepAnatomy], **anatomy_body(record)}))
    body: dict[str, Any] = {name: getattr(record, name) for name in record.__dataclass_fields__}
    scaler = body.get("scaler")
    if isinstance(scaler, ScalerInfo):
        body["scaler"] = _present({n: getattr(scaler, n) for n in ScalerInfo.__dataclass_fields__})
    kind = KIND_OF[type(record)]
    head: dict[str, Any] = {"type": kind}
    if kind == "run":
        head["schema"] = SCHEMA
    if isinstance(record, (TensorStats, ActivationStats)):
        exponents = body.pop("exponents")
        if exponents:
            body["exponents"] = [_exponents(each) for each in exponents]
        if record.scale is None:
            del body["scale"]
        return _encode(strict({**head, **body}))
    return _encode(strict({**head, **_present(body)}))


def _exponents(row: Exponents) -> dict[str, Any]:
    """One gradient's; what is 0, as nearly always, is left out."""
    first = int(row.first) if row.first == int(row.first) else row.first
    body: dict[str, Any] = {"first": first, "counts": row.counts}
    for name in ("zeros", "infinite", "nan"):
        if getattr(row, name):
            body[name] = getattr(row, name)
    return body


def _bare_line(record: Record) -> str:
    """The record without what cannot be written."""
    if isinstance(record, StepRecord):
        body: dict[str, Any] = {"type": "step"}
        pairs = list(zip(_STEP_FIELDS[:-1], record, strict=False))
    else:
        body = {"type": KIND_OF[type(record)]}
        pairs = [(name, getattr(record, name)) for name in record.__dataclass_fields__]
    for name, value in pairs:
        try:
            plain = strict(value)
            _encode(plain)
        except Exception:
            continue
        if plain is not None and plain != []:
            body[name] = plain
    return _encode(body)


def _present(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None and value != ()}
