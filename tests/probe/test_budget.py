"""Detail steps come as often as the budget allows, by what they really cost: with a clock made of
numbers, no time is measured here."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from ampwatch.probe.budget import QUIET_RECORDS, Budget
from ampwatch.probe.detail import EARLY_STEPS, LONGEST_GAP_STEPS, Spacing


@dataclass
class Clock:
    """A loop in seconds."""

    step: float = 0.01
    """One step of the plain loop."""
    quiet: float = 0.00003
    """What watching costs at each step."""
    detail: float = 0.010
    """What a detail step costs on top."""
    timed: float = 0.3
    """So much of that is timed on the spot."""
    after: float = 0.4
    """And so much falls into the record that comes next."""
    share: float = 0.01

    def run(self, steps: int) -> tuple[list[int], list[float]]:
        """The detail steps, and our own seconds step by step."""
        budget = Budget(self.share)
        spacing = Spacing(budget)
        details, spending, left = [], [], 0.0
        for step in range(steps):
            here, left = self.quiet + left, 0.0
            if spacing.due(step):
                details.append(step)
                here += self.detail * (1 - self.after)
                left = self.detail * self.after
                step_seconds = budget.elapsed / max(step, 1)
                spacing.took(step, self.detail * self.timed, step_seconds)
            of_detail = budget.record(here, self.step + here)
            if of_detail:
                spacing.settle(of_detail, budget.elapsed / max(step, 1))
            if left:
                budget.loud(detail=True)
            spending.append(here)
        return details, spending

    def shares(self, spending: list[float]) -> float:
        return sum(spending) / (self.step * len(spending) + sum(spending))


@pytest.mark.parametrize("timed", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("detail", [0.002, 0.01, 0.05])
def test_the_share_tends_to_the_budget_whatever_part_of_a_look_is_timed(
    timed: float, detail: float
) -> None:
    clock = Clock(timed=timed, detail=detail)
    details, spending = clock.run(60_000)
    assert clock.shares(spending) <= clock.share
    late = spending[20_000:]
    assert 0.5 * clock.share < clock.shares(late) <= clock.share
    assert details[:4] == list(EARLY_STEPS)


def test_a_short_run_has_its_early_ones_and_some_more() -> None:
    details, _ = Clock(detail=0.005).run(1000)
    assert details[:4] == list(EARLY_STEPS)
    assert len(details) >= 6


def test_what_quiet_steps_take_is_taken_off() -> None:
    shares = {}
    for quiet in (0.00001, 0.00007):
        clock = Clock(quiet=quiet)
        _, spending = clock.run(60_000)
        shares[quiet] = clock.shares(spending) - quiet / clock.step
        assert clock.shares(spending) <= clock.share
    assert shares[0.00007] < 0.7 * shares[0.00001]


def test_where_quiet_steps_take_all_of_it_detail_steps_still_come() -> None:
    clock = Clock(step=0.001, quiet=0.00005, detail=0.001)
    details, spending = clock.run(60_000)
    assert clock.shares(spending) > clock.share, "the quiet steps alone are five times too dear"
    gaps = [later - step for step, later in pairwise(details[4:])]
    assert max(gaps) <= LONGEST_GAP_STEPS * 1.3
    extra = clock.detail * len(details) / (clock.step * len(spending))
    assert extra <= 0.3 * clock.share


def test_no_budget_leaves_the_early_ones_and_the_rarest() -> None:
    details, _ = Clock(share=0.0).run(10_000)
    assert details[:4] == list(EARLY_STEPS)
    assert len(details) == pytest.approx(4 + 10_000 / LONGEST_GAP_STEPS, abs=2)


def test_the_price_of_a_look_is_what_its_records_took_beyond_the_quiet_ones() -> None:
    budget = Budget(0.01)
    for _ in range(QUIET_RECORDS):
        assert budget.record(0.002, 1.0) == 0.0
    budget.loud(detail=True)
    assert budget.record(0.012, 1.0) == pytest.approx(0.010)
    budget.loud()
    assert budget.record(0.005, 1.0) == 0.0, "it was no detail step"
    assert budget.extra == pytest.approx(0.013)
    assert budget.record(0.002, 1.0) == 0.0
    assert budget.elapsed == QUIET_RECORDS + 3
    # Of a second 0.2 % are quiet, so 0.5 % are left: 67 records of 5 ms, less 13 ms.
    assert budget.affords(0.3219, 1.0)
    assert not budget.affords(0.3221, 1.0)
    assert budget.debt(1.0) == 0.0
