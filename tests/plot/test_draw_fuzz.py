"""Any values, any size, any words: a plot of exactly that size, no error and no warning."""

from __future__ import annotations

import math
import random

import pytest
from rich.cells import cell_len

from ampwatch.history import History
from ampwatch.plot.draw import draw
from ampwatch.plot.spec import STYLES, Curve, Mark, PlotSpec

# What other tests have left for the collector is not ours to judge.
pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]

NASTY = (
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.2e-308, 1e-300, 1e-30,
    1e300, 1e308, -1e308, 1.7976931348623157e308, -1.7976931348623157e308, 65504.0, 2.0**16, 0.1,
)  # fmt: skip
WORDS = (
    "",
    "loss",
    "漢字" * 9,
    "a" * 300,
    "\x1b[2J\n",
    "[/b]",
    "👩‍👩‍👧🏽",
    "\u0301" * 5,
    "é\u202e",
    "\ud800",
)
SIZES = (0, 1, 2, 3, 5, 8, 13, 16, 24, 40, 80, 200)
CASES = 1200


def a_value(numbers: random.Random) -> float:
    kind = numbers.random()
    if kind < 0.3:
        return numbers.choice(NASTY)
    if kind < 0.6:
        return numbers.uniform(-1, 1) * 10.0 ** numbers.randint(-307, 307)
    return numbers.gauss(5, 1)


def a_history(numbers: random.Random) -> History:
    history = History()
    step = numbers.choice([0, 0, 0, 7, -3, 10**6, 10**17])
    stride = numbers.choice([0, 1, 1, 1, 5, 10**6, 10**14])
    constant = a_value(numbers) if numbers.random() < 0.2 else None
    for _ in range(
        numbers.choice([0, 1, 2, 3, 10, 100, 400, 5000 if numbers.random() < 0.1 else 20])
    ):
        history.add(step, a_value(numbers) if constant is None else constant)
        step += stride
    return history


def a_spec(numbers: random.Random) -> PlotSpec:
    curves = tuple(
        Curve(numbers.choice(WORDS), a_history(numbers))
        for _ in range(numbers.choice([0, 1, 1, 2, 6]))
    )
    steps = [curve.history.last_step or 0 for curve in curves] or [0]
    first = numbers.choice([0, 0, steps[0] - 10, steps[0] // 2, -5, 10**30])
    last = numbers.choice([steps[0], steps[0], steps[-1] + 3, first, first - 5, 10**30])
    marks = tuple(
        Mark(
            numbers.choice([numbers.randint(0, 50), *steps, -1, 10**25]),
            numbers.choice(("skip", "knob", "?")),
        )
        for _ in range(numbers.choice([0, 0, 3, 60]))
    )
    return PlotSpec(
        name="x",
        title=numbers.choice(WORDS),
        value=numbers.choice(WORDS),
        curves=curves,
        first=first,
        last=last,
        axis=numbers.choice(("linear", "log2", "log10")),
        marks=marks,
        lines=tuple(
            (a_value(numbers), numbers.choice(WORDS)) for _ in range(numbers.choice([0, 0, 1, 3]))
        ),
        empty=numbers.choice(WORDS),
        floor_zero=numbers.random() < 0.2,
    )


@pytest.mark.parametrize("seed", range(4))
def test_nothing_raises_and_every_row_is_exactly_as_wide_as_asked_for(seed: int) -> None:
    numbers = random.Random(seed)
    for case in range(CASES):
        spec = a_spec(numbers)
        width = numbers.choice((*SIZES, numbers.randint(1, 120)))
        height = numbers.choice((*SIZES[:10], numbers.randint(1, 40)))
        ascii_only = numbers.random() < 0.2
        picture = draw(spec, width, height, ascii_only=ascii_only)
        where = (seed, case, width, height)
        assert len(picture.rows) == height, where
        for row in picture.rows:
            assert sum(cell_len(text) for text, _ in row) == width, where
            assert all(style in STYLES for _, style in row), where
            text = "".join(text for text, _ in row)
            assert not text or text.isprintable(), where
            assert not ascii_only or text.isascii(), where
