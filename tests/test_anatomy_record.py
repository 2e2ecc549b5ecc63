"""A step taken apart is read back from its line as it was written, or refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from ampwatch.controls import EXPLAIN, Controls, Request
from ampwatch.errors import RecordError
from ampwatch.record import Followed, Operation, StepAnatomy, from_json, to_json
from ampwatch.run import Run
from tests.anatomies import SKIPPED, TAKEN

BARE = StepAnatomy(0)
CLIPPED = replace(
    TAKEN,
    clip_norm=math.nan,
    clip_limit=1.0,
    clipped_scaled=True,
    followed=replace(TAKEN.followed, clipped=(0.1, 0.2, -math.inf)),
)
REASONED = StepAnatomy(3, no_operations="the model is compiled", left_out=2, losses=4)


@pytest.mark.parametrize("record", [BARE, TAKEN, SKIPPED, REASONED], ids=lambda r: str(r.step))
def test_what_is_written_is_read_back(record: StepAnatomy) -> None:
    assert from_json(to_json(record)) == record


def test_inf_and_nan_survive_in_strict_json() -> None:
    line = to_json(CLIPPED)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    body = json.loads(line, parse_constant=refuse)
    assert body["type"] == "anatomy"
    read = from_json(line)
    assert isinstance(read, StepAnatomy)
    assert math.isnan(read.clip_norm or 0.0)
    assert read.followed is not None
    assert read.followed.clipped == (0.1, 0.2, -math.inf)


def test_a_bare_record_is_a_short_line() -> None:
    assert to_json(BARE) == '{"type":"anatomy","step":0,"operations":[]}'


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": "4"},
        {"operations": {}},
        {"operations": [3]},
        {"operations": [{"module": "0"}]},
        {"operations": [{"name": "linear", "inputs": "float32"}]},
        {"followed": []},
        {"followed": {"name": "w"}},
        {"stepped": 1},
        {"loss": "much"},
        {"tensors": 1.5},
    ],
    ids=str,
)
def test_a_line_with_a_wrong_field_is_refused(change: dict[str, object]) -> None:
    body = {**json.loads(to_json(TAKEN)), **change}
    with pytest.raises(RecordError):
        from_json(json.dumps(body))


def test_columns_of_the_followed_tensor_must_be_equally_long() -> None:
    body = json.loads(to_json(TAKEN))
    body["followed"]["after"].pop()
    with pytest.raises(RecordError, match="differ in length"):
        from_json(json.dumps(body))


def test_fields_of_a_newer_version_are_left_out() -> None:
    body = json.loads(to_json(TAKEN))
    body["colour"] = body["operations"][0]["colour"] = body["followed"]["colour"] = "blue"
    assert from_json(json.dumps(body)) == TAKEN


def test_a_place_is_the_index_in_the_tensor() -> None:
    followed = TAKEN.followed
    assert followed is not None
    # 33 = 1·32 + 1, 1000 = 31·32 + 8, 2047 = 63·32 + 31
    assert [followed.place(which) for which in range(3)] == [(1, 1), (31, 8), (63, 31)]
    scalar = Followed("s", "float32", "float32", (), (0,), (1.0,), (1.0,), (1.0,), (1.0,))
    assert scalar.place(0) == ()


def test_inf_comes_up_at_the_last_operation_whose_gradient_has_it() -> None:
    assert SKIPPED.infinite_at() is SKIPPED.operations[2]
    assert TAKEN.infinite_at() is None
    assert StepAnatomy(1, operations=(Operation("linear"),)).infinite_at() is None


def test_a_run_keeps_the_latest_one() -> None:
    run = Run()
    run.add(TAKEN)
    run.add(SKIPPED)
    assert run.anatomy is SKIPPED


def test_the_request_carries_the_name_of_the_tensor() -> None:
    sent: list[Request] = []
    panel = Controls(send=sent.append)
    panel.request(EXPLAIN, "0.weight")
    panel.request(EXPLAIN)
    assert [Request.from_json(each.to_json()) for each in sent] == [
        Request("explain", "0.weight"),
        Request("explain", None),
    ]
    assert panel.value(EXPLAIN) is None  # momentary: nothing lasts
