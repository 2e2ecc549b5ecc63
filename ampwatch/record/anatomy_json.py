"""A step taken apart, to JSON and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from ampwatch.record.anatomy import Followed, Operation, StepAnatomy
from ampwatch.record.fields import (
    count,
    integer,
    integers,
    number,
    numbers,
    short,
    text,
    texts,
    truth,
)

_T = TypeVar("_T", StepAnatomy, Operation, Followed)


def anatomy_body(record: StepAnatomy) -> dict[str, Any]:
    """The record as JSON takes it, without what is as it is by default."""
    body = _body(record)
    body["operations"] = [_body(operation) for operation in record.operations]
    if record.followed is not None:
        body["followed"] = _body(record.followed)
    return body


def read_anatomy(body: Mapping[str, Any]) -> StepAnatomy:
    """Raises KeyError, TypeError or ValueError for anything that is not such a record."""
    return _read(StepAnatomy, body, _ANATOMY)


def _body(part: StepAnatomy | Operation | Followed) -> dict[str, Any]:
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    defaults = {field.name: field.default for field in fields(part)}
    return {name: value for name, value in values.items() if value != defaults[name]}


def _read(kind: type[_T], body: Any, readers: Mapping[str, Callable[[Any], Any]]) -> _T:
    if not isinstance(body, dict):
        raise TypeError(f"{short(body)} is not an object")
    known = {
        name: readers[name](value)
        for name, value in body.items()
        if name in readers and value is not None
    }
    missing = [
        field.name for field in fields(kind) if field.default is MISSING and field.name not in known
    ]
    if missing:
        raise KeyError(missing[0])
    return kind(**known)


def _operations(value: Any) -> tuple[Operation, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{short(value)} is not a list")
    return tuple(_read(Operation, each, _OPERATION) for each in value)


def _followed(value: Any) -> Followed:
    followed = _read(Followed, value, _FOLLOWED)
    columns = (followed.scaled, followed.unscaled, followed.before, followed.after)
    clipped = [followed.clipped] * bool(followed.clipped)
    if any(len(column) != len(followed.index) for column in (*columns, *clipped)):
        raise ValueError("the columns of the followed tensor differ in length")
    return followed


_OPERATION: dict[str, Callable[[Any], Any]] = {
    "name": text,
    "module": text,
    "inputs": texts,
    "weights": texts,
    "output": text,
    "largest": number,
    "nonfinite": count,
    "size": count,
    "gradient": text,
    "gradient_largest": number,
    "gradient_nonfinite": count,
}
_FOLLOWED: dict[str, Callable[[Any], Any]] = {
    "name": text,
    "dtype": text,
    "gradient_dtype": text,
    "shape": integers,
    "index": integers,
    "scaled": numbers,
    "unscaled": numbers,
    "before": numbers,
    "after": numbers,
    "clipped": numbers,
    "largest": number,
    "zeros": count,
    "nonfinite": count,
    "flushed": count,
}
_ANATOMY: dict[str, Callable[[Any], Any]] = {
    "step": count,
    "optimizer": text,
    "dtype": text,
    "operations": _operations,
    "left_out": count,
    "no_operations": text,
    "loss": number,
    "loss_dtype": text,
    "losses": count,
    "scaler": text,
    "loss_gain": number,
    "scale": number,
    "growth_tracker": integer,
    "scaled_loss": number,
    "tensors": count,
    "gradient_dtypes": texts,
    "gradient_largest": number,
    "nonfinite_tensors": count,
    "nonfinite_values": count,
    "origin": text,
    "injected": truth,
    "followed": _followed,
    "found_inf": number,
    "clip_norm": number,
    "clip_limit": number,
    "clipped_scaled": truth,
    "stepped": truth,
    "fused": truth,
    "lr": number,
    "scale_after": number,
    "growth_tracker_after": integer,
}
