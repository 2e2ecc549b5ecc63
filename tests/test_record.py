"""Records and their JSON: what is written is read back, and nothing a line holds does harm."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from ampwatch.errors import RecordError
from ampwatch.record import (
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
    from_json,
    to_json,
)
from ampwatch.record.decode import _STEP_READERS

FULL_STEP = StepRecord(
    step=12,
    time=1.5,
    loss=0.25,
    losses=4,
    scale=65536.0,
    growth_tracker=7,
    skipped=True,
    grad_norm=math.inf,
    clipped_norm=math.nan,
    grad_max=-math.inf,
    nonfinite_tensors=3,
    nonfinite_values=17,
    origin="net.2.weight",
    dtype="float16",
    scaler="dynamic",
    lr=1e-3,
    optimizer="Adam 2",
    target_gain=10.0,
    loss_gain=0.1,
    overhead=0.004,
    facts=("autocast-in-backward",),
    metrics={"accuracy": 0.5, "Größe": math.nan},
)
RECORDS: list[Record] = [
    StepRecord(0, 0.0),
    RunInfo("toy", 1.75e9),
    RunInfo(
        "toy",
        1.75e9,
        ("train.py", "--lr", "0.1"),
        "0.1.0",
        "2.13.0",
        "3.11.4",
        "cpu",
        1,
        4,
        2177,
        ("2.bias", "2.weight"),
        ScalerInfo("dynamic", 65536.0, 2.0, 0.5, 2000),
        400,
    ),
    TensorStats(3, ("a", "b"), (1.0, math.inf), (0.5, math.nan), (0, 2), (0, 1), (4, 9)),
    TensorStats(
        *(4, ("a", "b"), (1.0, 0.0), (0.5, 0.0), (0, 2), (0, 1), (4, 9)),
        exponents=(Exponents(-3.0, (1, 0, 3)), Exponents(-20.58, (2**40,), 1, 2, 3)),
        scale=65536.0,
    ),
    ActivationStats(
        *(4, ("head", ""), (False, True), ("float16", "float32"), (0.5, math.nan), (0, 3), (4, 9)),
        exponents=(Exponents(-3.0, (1, 0, 3)), Exponents(0.0, (), nan=3)),
        scale=1000.0,
    ),
    ActivationStats(5, (), (), (), (), (), ()),
    RunEnd("failed", 12, "ValueError: no"),
    RunEnd("finished", 0),
    Notice("the scale is set", "scale", 2.0),
    Notice("no autocast in this loop", "dtype", None, True),
]


def loads_strictly(line: str) -> dict[str, object]:
    def refuse(name: str) -> object:
        raise AssertionError(f"{name} is not strict JSON")

    body = json.loads(line, parse_constant=refuse)
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_is_written_is_read_back(record: Record) -> None:
    back = from_json(to_json(record))
    # NaN differs from itself, so the spelling is compared.
    assert type(back) is type(record)
    assert repr(back) == repr(record)


def test_every_field_of_a_step_is_read_back() -> None:
    back = from_json(to_json(FULL_STEP))
    assert isinstance(back, StepRecord)
    assert repr(back._replace(metrics=dict(back.metrics))) == repr(FULL_STEP)


def test_the_reader_knows_the_fields_of_a_step_in_their_order() -> None:
    assert tuple(_STEP_READERS) == StepRecord._fields


def test_the_fields_of_a_step_line_are_the_published_ones() -> None:
    assert list(loads_strictly(to_json(FULL_STEP))) == [
        "type", "step", "time", "loss", "losses", "scale", "growth_tracker", "skipped",
        "grad_norm", "clipped_norm", "grad_max", "nonfinite_tensors", "nonfinite_values",
        "origin", "dtype", "scaler", "lr", "optimizer", "target_gain", "loss_gain", "overhead",
        "facts", "metrics",
    ]  # fmt: skip


def test_exponents_are_written_without_what_is_0() -> None:
    stats = TensorStats(4, ("a",), (1.0,), (0.5,), (0,), (0,), (4,), (Exponents(-3.0, (1, 3)),))
    body = loads_strictly(to_json(stats))
    assert body["exponents"] == [{"first": -3, "counts": [1, 3]}]
    assert "scale" not in body


@pytest.mark.parametrize(
    "change",
    [
        {"after": [0]},
        {"after": True},
        {"dtype": [16]},
        {"dtype": []},
        {"nonfinite": [-1]},
        {"size": ["4"]},
        {"max": [None]},
        {"exponents": []} | {"name": ["a", "b"]},
        {"step": -1},
        {"scale": "big"},
    ],
)
def test_a_wrong_field_of_activation_gradients_is_refused(change: dict[str, object]) -> None:
    stats = ActivationStats(1, ("a",), (False,), ("float16",), (1.0,), (0,), (4,))
    body = {**loads_strictly(to_json(stats)), **change}
    with pytest.raises(RecordError):
        from_json(json.dumps(body))


def test_a_log_from_before_exponents_is_read() -> None:
    line = (
        '{"type":"tensors","step":1,"name":["a"],"norm":[1],"max":[1],"zeros":[0],"nonfinite":[0]}'
    )
    stats = from_json(line)
    assert isinstance(stats, TensorStats)
    assert (stats.exponents, stats.scale) == ((), None)


@pytest.mark.parametrize(
    "exponents",
    [
        7,
        [7],
        [{}],
        [{"first": "nan", "counts": []}],
        [{"first": "inf", "counts": []}],
        [{"first": 1e9, "counts": []}],
        [{"first": 0, "counts": 3}],
        [{"first": 0, "counts": [-1]}],
        [{"first": 0, "counts": [0.5]}],
        [{"first": 0, "counts": [1] * 5000}],
        [{"first": 0, "counts": [1], "zeros": -1}],
        [{"first": 0, "counts": [1]}, {"first": 0, "counts": [1]}],  # one tensor, two rows
    ],
)
def test_exponents_that_are_none_are_refused(exponents: object) -> None:
    body = {"type": "tensors", "step": 1, "name": ["a"], "norm": [1], "max": [1]}
    with pytest.raises(RecordError):
        from_json(json.dumps({**body, "zeros": [0], "nonfinite": [0], "exponents": exponents}))


def test_absent_is_not_written() -> None:
    assert loads_strictly(to_json(StepRecord(3, 0.5))) == {"type": "step", "step": 3, "time": 0.5}


def test_what_json_lacks_is_a_string() -> None:
    body = loads_strictly(to_json(FULL_STEP))
    assert (body["grad_norm"], body["clipped_norm"], body["grad_max"]) == ("inf", "nan", "-inf")
    assert body["metrics"] == {"accuracy": 0.5, "Größe": "nan"}


def test_a_run_line_names_its_schema() -> None:
    assert loads_strictly(to_json(RunInfo("x", 0.0)))["schema"] == SCHEMA


def test_a_newer_schema_is_refused_with_what_to_do() -> None:
    with pytest.raises(RecordError, match="update ampwatch"):
        from_json('{"type":"run","schema":2,"name":"x","started":0}')


def test_unknown_fields_are_left_out() -> None:
    assert from_json('{"type":"step","step":1,"time":2,"colour":"red"}') == StepRecord(1, 2.0)


def test_null_counts_as_absent() -> None:
    assert from_json('{"type":"step","step":1,"time":2,"loss":null}') == StepRecord(1, 2.0)


def test_space_around_a_line_does_not_matter() -> None:
    assert from_json(' {"type":"step","step":1,"time":2}\r\n') == StepRecord(1, 2.0)


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "null",
        "[]",
        "3",
        "{",
        '{"type":"step","step":1,"time":2',
        '{"type":"step","step":1,"time":2} {}',
        "{}",
        '{"type":7}',
        '{"type":["step"]}',
        '{"type":"walk","step":1}',
        '{"type":"step"}',
        '{"type":"step","step":1}',
        '{"type":"step","time":1}',
        '{"type":"step","step":null,"time":1}',
        '{"type":"step","step":true,"time":1}',
        '{"type":"step","step":1.0,"time":1}',
        '{"type":"step","step":-1,"time":1}',
        '{"type":"step","step":9223372036854775808,"time":1}',
        '{"type":"step","step":1,"time":NaN}',
        '{"type":"step","step":1,"time":"nan"}',
        '{"type":"step","step":1,"time":1e999}',
        '{"type":"step","step":1,"time":1,"loss":Infinity}',
        '{"type":"step","step":1,"time":1,"loss":"large"}',
        '{"type":"step","step":1,"time":1,"loss":true}',
        '{"type":"step","step":1,"time":1,"skipped":1}',
        '{"type":"step","step":1,"time":1,"origin":5}',
        '{"type":"step","step":1,"time":1,"facts":"a"}',
        '{"type":"step","step":1,"time":1,"facts":[1]}',
        '{"type":"step","step":1,"time":1,"metrics":[1]}',
        '{"type":"step","step":1,"time":1,"metrics":{"a":[1]}}',
        '{"type":"step","step":1,"time":1,"loss":' + "9" * 400 + "}",
        '{"type":"step","step":' + "9" * 5000 + ',"time":1}',
        '{"type":"run","name":"x"}',
        '{"type":"run","name":"x","started":0,"scaler":[]}',
        '{"type":"run","name":"x","started":0,"scaler":{}}',
        '{"type":"run","name":"x","started":0,"argv":"a"}',
        '{"type":"tensors","step":1,"name":["a"],"norm":[],"max":[1],"zeros":[0],"nonfinite":[0]}',
        '{"type":"tensors","step":1,"name":["a"],"norm":[{}],"max":[1],"zeros":[0],"nonfinite":[0]}',
        '{"type":"end","status":"finished"}',
        '{"type":"notice","text":"x","value":[1]}',
        "[" * 100_000,
        '{"type":"step","step":1,"time":1,"metrics":' + '{"a":' * 5000 + "1" + "}" * 5001,
        '{"type":"step","step":1,"time":1,"loss":' + "[" * 500 + "]" * 500 + "}",
    ],
    ids=lambda line: line[:60],
)
def test_a_line_that_is_no_record_gives_a_record_error(line: str) -> None:
    with pytest.raises(RecordError) as caught:
        from_json(line)
    assert len(str(caught.value)) < 400


def test_garbled_lines_give_records_or_record_errors() -> None:
    """Ten thousand lines with characters changed, cut out or doubled: nothing else may happen."""
    choose = random.Random(7)
    lines = [to_json(record) for record in [*RECORDS, FULL_STEP]]
    strange = '{}[]",:0-9.eE+nulltrue\\u\ud800\x00é '
    refused = 0
    for _ in range(10_000):
        line = list(choose.choice(lines))
        for _ in range(choose.randint(1, 4)):
            at = choose.randrange(len(line))
            line[at : at + choose.randint(0, 3)] = choose.choices(strange, k=choose.randint(0, 3))
            if not line:
                break
        try:
            record = from_json("".join(line))
        except RecordError:
            refused += 1
        else:
            to_json(record).encode()
    assert 0 < refused < 10_000


def test_half_a_surrogate_pair_in_a_line_becomes_text_that_prints() -> None:
    record = from_json('{"type":"step","step":1,"time":1,"origin":"a\\ud800b"}')
    assert isinstance(record, StepRecord)
    assert record.origin == "a\\ud800b"
    record.origin.encode()


def test_half_a_surrogate_pair_in_a_name_can_be_written() -> None:
    line = to_json(StepRecord(1, 1.0, origin="a\ud800b", metrics={"\udfff": 1.0}))
    assert loads_strictly(line.encode().decode())["origin"] == "a\ud800b"


def test_text_of_any_kind_is_read_back() -> None:
    for text in ['quote " back \\ slash', "line\nfeed\ttab\x00nul\x7f", "Größe 漢字 🙂", ""]:
        assert from_json(to_json(StepRecord(1, 1.0, origin=text))) == StepRecord(
            1, 1.0, origin=text
        )


def test_a_line_has_no_line_feed_in_it() -> None:
    for separator in "\n\r":
        assert separator not in to_json(RunEnd("failed", 1, f"a{separator}b"))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.float16(np.inf), math.inf),
        (np.int64(7), 7.0),
        (np.array(0.25), 0.25),
        (3, 3.0),
        (True, 1.0),
        (10**400, math.inf),
    ],
    ids=repr,
)
def test_a_metric_may_be_any_kind_of_number(value: float, number: float) -> None:
    record = from_json(to_json(StepRecord(1, 1.0, metrics={"m": value})))
    assert isinstance(record, StepRecord)
    assert record.metrics == {"m": number}


class Explosive:
    def __float__(self) -> float:
        raise RuntimeError("boom")

    def __str__(self) -> str:
        raise RuntimeError("boom")


@pytest.mark.parametrize("value", [None, "high", object(), Explosive(), [1.0], {"a": 1.0}])
def test_a_metric_that_is_no_number_does_not_cost_the_record(value: float) -> None:
    record = from_json(to_json(StepRecord(1, 1.0, loss=0.5, metrics={"m": value})))
    assert record == StepRecord(1, 1.0, loss=0.5)


def test_numpy_numbers_in_any_field_are_written() -> None:
    record = StepRecord(
        np.int64(4),
        np.float32(0.5),
        loss=np.float32(math.nan),
        skipped=np.bool_(True),
        losses=10**30,
    )
    body = loads_strictly(to_json(record))
    assert (body["step"], body["time"], body["loss"]) == (4, 0.5, "nan")


def test_a_record_full_of_nonsense_is_written_as_something() -> None:
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    for value in (Explosive(), nested, object()):
        loads_strictly(to_json(StepRecord(1, 1.0, value, facts=value, metrics=value)))  # type: ignore[arg-type]
        loads_strictly(to_json(Notice(value, value, value)))  # type: ignore[arg-type]
        loads_strictly(to_json(RunEnd(value, value, value)))  # type: ignore[arg-type]
        loads_strictly(to_json(TensorStats(value, value, value, value, value, value)))  # type: ignore[arg-type]
