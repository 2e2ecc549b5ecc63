"""Which backward passes are searched: those that may go wrong, at a price that is paid once."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from ampwatch.probe import search_plan as search_plan_module
from ampwatch.probe.budget import Budget
from ampwatch.probe.search_plan import (
    FREE_SEARCHES,
    FREE_SECONDS,
    LONGEST_SEARCH_STEPS,
    MOST_FOUND,
    MOST_SEARCHES,
    MOST_VAIN,
    NEVER,
    SearchPlan,
)

STEP = 0.001
"""Seconds that a step takes; a search takes as long again."""


class Training:
    """A loop that skips at some steps, with a search that finds what goes wrong in its own pass.

    Args:
        share: of the training time that the budget allows.
        search: seconds that one takes.
        finds: whether it finds anything.
    """

    def __init__(self, share: float = 0.0, search: float = STEP, finds: bool = True) -> None:
        self.budget = Budget(share)
        self.plan = SearchPlan(self.budget)
        self.searched: list[int] = []
        self.found: list[int] = []
        self._search = search
        self._finds = finds

    def run(self, steps: int, skips: Collection[int], by_scale: bool = False) -> None:
        for step in range(steps):
            spent = 0.0
            wanted = self.plan.begins <= step and self.plan.wants(step, STEP)
            found = wanted and step in skips and self._finds
            if wanted:
                spent = self._search
                self.budget.loud()
                self.searched.append(step)
                self.plan.searched(step, self._search, found)
                self.found += [step] * found
            if step in skips:
                self.plan.skipped(step, step, by_scale=by_scale, explained=found)
            self.budget.record(spent, STEP + spent)


def test_a_loop_without_skips_is_never_searched() -> None:
    training = Training(share=1.0)
    training.run(100, ())
    assert training.searched == []
    assert training.plan.begins == NEVER


@pytest.mark.parametrize("period", [2, 3, 4, 7, 16, 100, 1000])
def test_skips_in_a_rhythm_are_found_at_the_fourth_at_the_latest(period: int) -> None:
    training = Training(share=0.0)
    training.run(5 * period, range(0, 5 * period, period))
    assert training.found[0] <= 3 * period
    assert len(training.searched) < FREE_SEARCHES


def test_a_rhythm_beyond_every_window_is_met_by_its_period_alone() -> None:
    period = 10 * LONGEST_SEARCH_STEPS
    training = Training(share=0.0)
    training.run(6 * period, range(period, 6 * period, period))
    assert training.found[0] == 4 * period


@pytest.mark.parametrize("seed", range(20))
def test_skips_at_random_steps_are_found(seed: int) -> None:
    choice = random.Random(seed)
    skips = {step for step in range(400) if choice.random() < 0.12}
    training = Training(share=0.0)
    training.run(400, skips)
    assert training.found
    assert training.searched.index(training.found[0]) < FREE_SEARCHES


def test_what_is_found_is_enough_after_a_while() -> None:
    training = Training(share=1.0)
    training.run(200, range(0, 200, 2))
    assert len(training.found) == MOST_FOUND
    assert training.searched[-1] == training.found[-1]
    training.plan.rested()
    training.run(200, range(0, 200, 2))
    assert len(training.found) == 2 * MOST_FOUND


def test_nothing_more_is_searched_where_nothing_is_found() -> None:
    choice = random.Random(1)
    skips = {step for step in range(20_000) if choice.random() < 0.1}
    training = Training(share=1.0, finds=False)
    training.run(20_000, skips)
    assert len(training.searched) == MOST_SEARCHES


@pytest.mark.parametrize("search", [STEP, 0.02])
def test_without_a_budget_the_price_is_paid_once(search: float) -> None:
    choice = random.Random(2)
    skips = {step for step in range(4000) if choice.random() < 0.02}
    training = Training(share=0.0, search=search, finds=False)
    training.run(4000, skips)
    behind = [step for step in training.searched if step - 1 in skips]
    free = len(training.searched) - len(behind)
    assert 0 < free <= FREE_SEARCHES
    # The first of all is free before it is known what it costs.
    assert free * search <= FREE_SECONDS + search
    assert len(behind) <= MOST_VAIN + FREE_SEARCHES


def test_a_long_training_can_afford_dearer_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan_module, "FREE_SECONDS", 0.0)
    free = {}
    for begin in (0, 10_000):
        training = Training(share=0.0, search=0.05, finds=False)
        training.run(begin, ())
        training.run(64, (5, 9, 20, 41))
        free[begin] = len(training.searched)
    # 3 % of ten seconds are six searches of 50 ms; those of the step behind a skip come on top.
    assert free == {0: 4 + 0, 10_000: 4 + 6}


def test_the_budget_pays_for_more() -> None:
    choice = random.Random(3)
    skips = {step for step in range(20_000) if choice.random() < 0.01}
    searched = {}
    for share in (0.0, 0.04):
        training = Training(share=share, finds=False)
        training.run(20_000, skips)
        searched[share] = len(training.searched)
    assert searched[0.04] > searched[0.0]


def test_skips_that_the_scale_explains_take_nothing_of_what_is_free() -> None:
    training = Training(share=0.0, finds=False)
    growth = range(0, 30 * 201, 201)
    training.run(30 * 201, growth, by_scale=True)
    behind = [step + 1 for step in growth[:MOST_VAIN]]
    due = list(growth[3:])
    assert training.searched == sorted([*behind, *due])
    assert training.plan._free == 0


def test_a_scale_that_comes_down_is_found_at_its_second_skip() -> None:
    training = Training(share=0.0)
    training.run(12, range(12), by_scale=True)
    assert training.found[0] == 1


def test_numbers_that_come_late_leave_a_rhythm_its_beat() -> None:
    plan = SearchPlan(Budget(0.0))
    for skip in (10, 30, 50):
        plan.skipped(skip, skip + 25, by_scale=True, explained=False)
    assert plan.begins == 76, "the step behind the one at which the last skip was learned of"
    plan.searched(76, STEP, False)
    assert [step for step in range(77, 120) if plan.begins <= step and plan.wants(step, STEP)] == [
        90
    ]


def test_where_nothing_can_be_seen_nothing_is_searched() -> None:
    training = Training(share=1.0)
    training.plan.end()
    training.run(40, range(0, 40, 3))
    assert training.searched == []
