"""Who takes steps when."""

from __future__ import annotations

from typing import Any

import pytest

from ampwatch.compare import VARIANTS, Variant
from ampwatch.compare.race import Interrupted, Plan, Race
from ampwatch.compare.switching import NO_AUTOCAST, NO_SCALER, SCALER_OFF, look
from ampwatch.compare.track import Track
from ampwatch.record import Notice, StepRecord


class MadeMember:
    """A member whose steps come at once."""

    def __init__(self, variant: Variant, told: list[tuple[Any, ...]], **does: Any) -> None:
        self.variant = variant
        self.track = Track()
        self.alive = True
        self.impossible: str | None = None
        self._told = told
        self._does = {"dtype": variant.dtype, "scaler": variant.scaler, "length": 10**9, **does}

    def _walk(self, steps: int) -> None:
        for _ in range(steps):
            if self.track.steps >= self._does["length"]:
                self.alive = False
                self.track.ended()
                return
            record = StepRecord(
                self.track.steps, 0.0, dtype=self._does["dtype"], scaler=self._does["scaler"]
            )
            self.track.add(record)
        self.track.add(Notice("", "step", 1.0))

    def start(self, steps: int) -> None:
        self._told.append(("start", self.variant.name, steps))
        self._walk(steps)

    def go(self, steps: int) -> None:
        self._told.append(("go", self.variant.name, steps))
        self.track.begin_block(steps)
        self._walk(steps)

    def release(self) -> None:
        self._told.append(("release", self.variant.name))
        self.alive = False

    def give_up(self, why: str) -> None:
        self.impossible = why
        self.alive = False

    def take(self) -> None: ...
    def digest(self) -> None: ...


def race(told: list[tuple[Any, ...]], plan: Plan, together: bool = True, **does: Any) -> list[Any]:
    members: list[Any] = [
        MadeMember(variant, told, **does.get(variant.name.replace("-", "_"), {}))
        for variant in VARIANTS[:3]
    ]
    Race(members, plan, lambda: None, together=together).run()
    return members


def sizes(steps: int, step_seconds: float | None) -> list[int]:
    """The blocks of a run in which every step takes so long."""
    plan = Plan.of(steps)
    found: list[int] = []
    while size := plan.block(plan.warm_up + sum(found), step_seconds if found else None):
        found.append(size)
    return found


def test_there_are_ten_rounds_where_steps_suffice() -> None:
    assert Plan.of(200).warm_up == 10
    assert sizes(200, 0.01) == [18] * 10 + [9]
    assert sizes(20, 0.01) == [5, 5]  # after 5 of warm-up; 4 are no block
    assert sizes(10, 0.01) == [5]


def test_a_block_lasts_about_a_second() -> None:
    assert sizes(10_000, 0.01)[:4] == [20, 100, 100, 100]
    assert sizes(200, 0.125)[:4] == [18, 8, 8, 8]
    assert sizes(200, 60.0)[:4] == [18, 5, 5, 5], "but it has as many as a median needs"


@pytest.mark.parametrize("seconds", [0.0005, 0.2])
def test_the_last_step_is_left_for_the_end(seconds: float) -> None:
    for steps in range(10, 400):
        blocks = sizes(steps, seconds)
        assert blocks, steps
        assert min(blocks) >= 5
        assert Plan.of(steps).warm_up + sum(blocks) < steps


def test_one_at_a_time_takes_steps_in_rounds_of_alternating_order() -> None:
    told: list[tuple[Any, ...]] = []
    race(told, Plan(15, 4, 5))
    a, b, c = (variant.name for variant in VARIANTS[:3])
    assert told == [
        ("start", a, 4), ("start", b, 4), ("start", c, 4),
        ("go", a, 5), ("go", b, 5), ("go", c, 5),
        ("go", c, 5), ("go", b, 5), ("go", a, 5),
        ("release", a), ("release", b), ("release", c),
    ]  # fmt: skip


def test_one_after_the_other_if_memory_is_short() -> None:
    told: list[tuple[Any, ...]] = []
    race(told, Plan(10, 4, 5), together=False)
    kinds = [(what, name) for what, name, *_ in told]
    assert kinds == [
        (what, variant.name) for variant in VARIANTS[:3] for what in ("start", "go", "release")
    ]


def test_one_that_ends_early_does_not_stop_the_others() -> None:
    told: list[tuple[Any, ...]] = []
    members = race(told, Plan(20, 4, 5), bf16={"length": 11})
    assert [member.track.steps for member in members] == [19, 11, 19]
    assert [len(member.track.blocks) for member in members] == [3, 2, 3]
    assert members[1].track.blocks[-1] is None


def test_an_interruption_comes_out() -> None:
    def stop() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        Race([], Plan.of(20), stop).run()


# -- whether anything can be switched --------------------------------------------------------------


def looked_at(**does: dict[str, Any]) -> list[str | None]:
    members: list[Any] = []
    for variant in VARIANTS:
        member = MadeMember(variant, [], **does.get(variant.name.replace("-", "_"), {}))
        member.start(2)
        members.append(member)
    look(members)
    return [member.impossible for member in members]


def test_a_loop_that_does_as_it_is_told_is_run_in_every_variant() -> None:
    assert looked_at() == [None] * 5


def test_a_loop_without_autocast_is_float32_whatever_it_is_told() -> None:
    plain = {"dtype": "float32", "scaler": None}
    told = looked_at(bf16=plain, fp16_dynamic=plain, fp16_static=plain, fp16_none=plain, fp32=plain)
    assert told == [NO_AUTOCAST] * 5


def test_a_loop_without_a_scaler_has_three_variants() -> None:
    none = {"scaler": None}
    told = looked_at(fp32=none, bf16=none, fp16_dynamic=none, fp16_static=none, fp16_none=none)
    assert told == [None, None, NO_SCALER, NO_SCALER, None]


def test_a_scaler_that_stays_off_is_none() -> None:
    off = {"scaler": "off"}
    told = looked_at(fp16_dynamic=off, fp16_static=off)
    assert told == [None, None, SCALER_OFF, SCALER_OFF, None]


def test_one_that_has_not_taken_a_step_is_let_be() -> None:
    assert looked_at(bf16={"length": 0}) == [None] * 5
