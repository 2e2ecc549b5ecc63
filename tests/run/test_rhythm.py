"""Events at every n-th step, among others and by chance."""

from __future__ import annotations

import random

from ampwatch.run.rhythm import Rhythm, rhythm_of


def test_equal_distances_are_a_rhythm() -> None:
    assert rhythm_of([15, 31, 47, 63]) == Rhythm(16, 15, 63, 4)


def test_three_events_are_too_few() -> None:
    assert rhythm_of([15, 31, 47]) is None


def test_others_between_do_not_hide_it() -> None:
    others = random.Random(1).sample(range(400), 20)
    rhythm = rhythm_of(sorted({*range(15, 400, 16), *others}))
    assert rhythm is not None
    assert (rhythm.period, rhythm.first % 16, rhythm.last) == (16, 15, 399)


def test_one_that_begins_late_is_found() -> None:
    assert rhythm_of([3, 10, 24, *range(100, 400, 25)]) == Rhythm(25, 100, 375, 12)


def test_chance_makes_no_rhythm() -> None:
    for seed in range(300):
        steps = sorted(random.Random(seed).sample(range(1000), 30))
        assert rhythm_of(steps) is None, seed


def test_a_run_of_events_is_none() -> None:
    assert rhythm_of(range(100, 160)) is None


def test_events_that_something_else_explains_do_not_count() -> None:
    steps = list(range(25, 400, 26))
    assert rhythm_of(steps, telling=[]) is None
    assert rhythm_of(steps, telling=steps[::2]) == Rhythm(26, 25, steps[-1], len(steps))


def test_a_rhythm_knows_its_beats_and_whether_it_goes_on() -> None:
    rhythm = Rhythm(16, 15, 63, 4)
    assert [step for step in range(80) if rhythm.holds(step)] == [15, 31, 47, 63]
    assert rhythm.goes_on(78)
    assert not rhythm.goes_on(79)
