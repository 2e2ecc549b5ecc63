"""The picture of a range: its cells against what they stand for."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from ampwatch.formats import BFLOAT16, E4M3, FLOAT16, FORMATS
from ampwatch.plot.range_picture import (
    INKS,
    PLAIN,
    ZONES,
    Axis,
    Band,
    RangeSpec,
    draw_range,
    zone,
)
from ampwatch.plot.spec import Picture

BELL = (1.0, 6.0, 15.0, 20.0, 15.0, 6.0, 1.0)


def spec(first: float = -30.0, doublings: float = 16.0, form=FLOAT16) -> RangeSpec:  # type: ignore[no-untyped-def]
    return RangeSpec(
        Band("true values", first, BELL), Band("scaled: × 2^16", first + doublings, BELL), form
    )


def bars(picture: Picture, ink: str) -> tuple[int, int]:
    """First and last column in which a bar of this band stands."""
    full = {"true": "⣀⣤⣶⣿", "scaled": "▁▂▃▄▅▆▇█"}[ink]
    columns = [
        column
        for line in picture.text.splitlines()
        if "values" not in line and "scaled" not in line
        for column, sign in enumerate(line)
        if sign in full
    ]
    return min(columns), max(columns)


@pytest.mark.parametrize("ascii_only", [False, True])
def test_whatever_the_size_and_the_values_it_fills_its_cells_exactly(ascii_only: bool) -> None:
    chance = random.Random(0)
    keys = {*PLAIN, *(f"{ink} {where}" for ink in INKS for where in ZONES)}
    for _ in range(400):
        width, height = chance.randrange(0, 200), chance.randrange(0, 40)
        counts = tuple(chance.choice([0.0, 1.0, 1e9]) for _ in range(chance.randrange(0, 300)))
        band = Band("x" * chance.randrange(0, 90), chance.uniform(-1100, 900), counts)
        given = RangeSpec(band, band, chance.choice(FORMATS))
        picture = draw_range(given, width, height, ascii_only=ascii_only)
        assert len(picture.rows) == height
        for row in picture.rows:
            assert sum(cell_len(text) for text, _ in row) == width
            assert {key for _, key in row} <= keys
        assert picture.text.isascii() or not ascii_only


@pytest.mark.parametrize("width", [30, 57, 78, 120, 200])
def test_columns_are_whole_powers_or_whole_parts_of_one_and_all_is_in_view(width: int) -> None:
    axis = Axis.over((Band("", -70.0, BELL), Band("", 20.0, BELL)), width)
    assert axis.per_column >= 1 or (1 / axis.per_column).is_integer()
    assert axis.first <= -71
    assert axis.first + width * axis.per_column >= 28
    heights = axis.heights(Band("", -70.0, BELL))
    assert heights.max() == 1.0
    assert (heights > 0).any()
    left, right = axis.column(-70), axis.column(-63 - 1e-9)
    assert not heights[:left].any()
    assert not heights[right + 1 :].any()


def test_both_bands_lie_the_doublings_of_the_scale_apart() -> None:
    picture = draw_range(spec(), 78, 14)  # a column to a power of two
    true, scaled = bars(picture, "true"), bars(picture, "scaled")
    assert true[1] - true[0] == len(BELL) - 1
    assert (scaled[0] - true[0], scaled[1] - true[1]) == (16, 16)


def test_another_scale_slides_the_lower_band_and_nothing_else() -> None:
    before, after = draw_range(spec(), 78, 14), draw_range(spec(doublings=17), 78, 14)
    assert bars(after, "true") == bars(before, "true")
    assert bars(after, "scaled")[0] == bars(before, "scaled")[0] + 1
    assert after.rows[-1] == before.rows[-1]  # the axis stands still


def test_the_bands_differ_in_their_signs_and_what_is_lost_has_a_style_of_its_own() -> None:
    picture = draw_range(spec(doublings=14), 78, 14)
    styles = {key for row in picture.rows for _, key in row}
    assert "lost zero" in styles  # 2^-30 is 0 in fp16
    assert "scaled subnormal" in styles  # 2^-16 and 2^-15
    assert "scaled normal" in styles
    assert "⣿" in picture.text
    assert "█" in picture.text


def test_a_single_value_in_a_million_is_seen() -> None:
    band = Band("true values", -30.0, (1.0, 0.0, 0.0, 0.0, 1e6))
    picture = draw_range(RangeSpec(band, band, FLOAT16), 78, 14)
    first, last = bars(picture, "true")
    assert last - first == 4


def test_zones_begin_where_a_format_does() -> None:
    assert [zone(FLOAT16, power) for power in (-25.5, -24.5, -14.5, -13.5, 15.5, 16.5)] == [
        "zero", "subnormal", "subnormal", "normal", "normal", "overflow",
    ]  # fmt: skip
    assert zone(E4M3, 8.5) == "normal"  # up to 448
    assert zone(E4M3, 9.5) == "overflow"


def test_zones_are_named_and_those_out_of_view_are_pointed_at() -> None:
    names = draw_range(spec(), 78, 14).text.splitlines()[0]
    assert [name in names for name in ("becomes 0", "subnormal", "normal")] == [True] * 3
    far = draw_range(spec(form=BFLOAT16), 78, 14).text.splitlines()[0]
    assert far.startswith("◀ becomes 0 below 2^-134 ")
    assert far.endswith(" beyond 2^128 ▶")
    assert " normal " in far


def test_ticks_stand_under_their_powers() -> None:
    *_, line, words = draw_range(spec(), 78, 14).text.splitlines()
    at = words.index("2^-24")
    assert line[at] == "┴"
    axis = Axis.over((spec().true, spec().scaled), 78)
    assert axis.column(-24) == at


def test_nothing_but_zeros_is_said() -> None:
    nothing = Band("true values", 0.0, ())
    text = draw_range(RangeSpec(nothing, nothing, FLOAT16), 78, 14).text
    assert "no value but 0, inf and NaN" in text


def test_where_it_is_too_small_it_says_so() -> None:
    assert "too small" in draw_range(spec(), 30, 5).text
