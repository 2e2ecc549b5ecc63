"""A plot shows what it is told, where it belongs, without colour too."""

from __future__ import annotations

import math

import pytest
from rich.cells import cell_len
from sample_plots import cells, series, spec, styled

from ampwatch.history import Columns
from ampwatch.plot import scene
from ampwatch.plot.draw import draw
from ampwatch.plot.spec import Curve, Mark, Picture, PlotSpec
from ampwatch.plot.step_axis import step_axis

pytestmark = pytest.mark.filterwarnings("error")

WIDTH, HEIGHT = 60, 16
LEFT = 6
"""Columns left of the box's inside: five of labels and the edge."""
INSIDE = WIDTH - LEFT - 1
BRAILLE = range(0x2801, 0x2900)


def column_of(step: int, last: int) -> int:
    return LEFT + step_axis(0, last).column(step, INSIDE)


def curve_cells(picture: Picture, style: str = "curve0") -> dict[tuple[int, int], str]:
    """The cells of a curve inside the box."""
    found = cells(picture)
    inside = {at: pair for at, pair in found.items() if at[0] > 0 and LEFT <= at[1] < WIDTH - 1}
    return {at: sign for at, (sign, key) in inside.items() if key == style and sign != " "}


def signs_at(picture: Picture, sign: str, style: str) -> set[tuple[int, int]]:
    return {at for at, pair in cells(picture).items() if pair == (sign, style)}


def test_title_and_latest_value_are_in_the_first_row() -> None:
    picture = draw(spec([1.0, 2.0]), WIDTH, HEIGHT)
    assert picture.text.splitlines()[0].startswith("loss  0.25 ─")
    assert styled(picture, "title").strip() == "loss"
    assert styled(picture, "value").strip() == "0.25"


def test_every_row_is_as_wide_as_asked_for() -> None:
    picture = draw(spec([1.0, 2.0]), WIDTH, HEIGHT)
    assert len(picture.rows) == picture.height == HEIGHT
    assert {cell_len("".join(text for text, _ in row)) for row in picture.rows} == {WIDTH}


def test_a_rising_series_rises_from_the_bottom_left_to_the_top_right() -> None:
    drawn = curve_cells(draw(spec(map(float, range(101))), WIDTH, HEIGHT))
    rows_by_column = {column: row for row, column in sorted(drawn)}
    columns = sorted(rows_by_column)
    rows = [rows_by_column[column] for column in columns]
    assert rows == sorted(rows, reverse=True)
    assert (rows[0], rows[-1]) == (HEIGHT - 3, 1)
    assert columns[0] == LEFT
    assert columns == list(range(columns[0], columns[-1] + 1))


def test_one_point_is_seen() -> None:
    drawn = curve_cells(draw(spec([0.7]), WIDTH, HEIGHT))
    assert len(drawn) == 1
    ((_, column),) = drawn
    assert column == LEFT


def test_few_points_are_joined() -> None:
    drawn = curve_cells(draw(spec([0.0, 1.0, 0.0, 1.0], last=10), WIDTH, HEIGHT))
    columns = {column for _, column in drawn}
    assert columns == set(range(column_of(0, 10), column_of(3, 10) + 1))


def test_a_constant_is_a_line_in_the_middle() -> None:
    for axis in ("linear", "log2", "log10"):
        drawn = curve_cells(draw(spec([60000.0] * 50, axis=axis), WIDTH, HEIGHT))
        assert {row for row, _ in drawn} == {7}, axis  # of rows 1 to 13


def test_every_curve_cell_is_braille() -> None:
    drawn = curve_cells(draw(spec([1.0, 5.0, 2.0]), WIDTH, HEIGHT))
    assert all(ord(sign) in BRAILLE for sign in drawn.values())


def test_a_nan_is_a_gap_with_a_mark_at_the_top_of_its_column() -> None:
    values = [1.0] * 11
    values[5] = math.nan
    picture = draw(spec(values), WIDTH, HEIGHT)
    assert signs_at(picture, "!", "bad") == {(1, column_of(5, 10))}
    before, after = column_of(4, 10), column_of(6, 10)
    columns = {column for _, column in curve_cells(picture)}
    assert not columns & set(range(before + 1, after))
    assert {before, after} <= columns


def test_nothing_but_nan_is_marked_although_there_is_no_curve() -> None:
    picture = draw(spec([math.nan, math.inf, -math.inf]), WIDTH, HEIGHT)
    assert {at[1] for at in signs_at(picture, "!", "bad")} == {column_of(n, 10) for n in range(3)}
    assert not curve_cells(picture)


def test_zeros_and_negatives_on_a_log_axis_are_marked() -> None:
    values = [1.0, 0.0, 10.0, -3.0, 100.0]
    for axis in ("log2", "log10"):
        picture = draw(spec(values, axis=axis), WIDTH, HEIGHT)
        marked = {at[1] for at in signs_at(picture, "!", "bad")}
        assert marked == {column_of(1, 10), column_of(3, 10)}
        assert len({column for _, column in curve_cells(picture)}) == 3


def test_a_zero_beside_a_positive_value_of_the_same_column_hides_neither() -> None:
    sampled = scene.curves(
        PlotSpec("x", "", "", (Curve("x", series([0.0, 4.0])),), 0, 1, axis="log2"),
        step_axis(0, 1),
        1,
    )
    (columns,) = sampled
    assert isinstance(columns, Columns)
    assert (columns.lo.tolist(), columns.hi.tolist(), columns.bad.tolist()) == (
        [4.0],
        [4.0],
        [True],
    )


@pytest.mark.parametrize("count", [20, 100_000])
def test_skipped_steps_are_marked_at_the_bottom_of_their_own_column(count: int) -> None:
    steps = [3, count // 2, count - 1]
    marks = tuple(Mark(step, "skip") for step in steps)
    picture = draw(spec([2.0**16] * count, axis="log2", marks=marks), WIDTH, HEIGHT)
    expected = {(HEIGHT - 3, column_of(step, count - 1)) for step in steps}
    assert signs_at(picture, "▼", "skip") == expected


def test_the_curve_keeps_off_the_row_of_the_skip_marks() -> None:
    values = [2.0**16, 2.0**15, 2.0**15, 2.0**14, 2.0**14]
    picture = draw(spec(values, axis="log2", marks=(Mark(1, "skip"),)), WIDTH, HEIGHT)
    assert max(row for row, _ in curve_cells(picture)) == HEIGHT - 4


def test_a_knob_is_a_dotted_line_down_its_own_column() -> None:
    picture = draw(spec([1.0] * 100, marks=(Mark(40, "knob", "dtype"),)), WIDTH, HEIGHT)
    found = signs_at(picture, "┊", "knob")
    assert {column for _, column in found} == {column_of(40, 99)}
    assert len(found) == HEIGHT - 3 - 1  # all rows but the one with the curve


def test_a_knob_says_what_it_was_turned_to_where_there_is_room() -> None:
    marks = (Mark(20, "knob", "bfloat16"), Mark(60, "knob", "float16"), Mark(95, "knob", "float32"))
    text = draw(spec([1.0] * 100, marks=marks), WIDTH, HEIGHT).text
    assert "┊bfloat16 " in text.splitlines()[1]
    assert "┊float16 " in text.splitlines()[1]
    assert "float32" not in text


def test_the_name_of_a_knob_covers_no_curve() -> None:
    marks = (Mark(40, "knob", "bfloat16"),)
    values = [0.0] * 21 + [9.0] * 80
    with_name, without = (
        draw(spec(values, marks=each), WIDTH, HEIGHT) for each in (marks, (Mark(40, "knob"),))
    )
    assert "bfloat16" in with_name.text.splitlines()[2]
    assert curve_cells(with_name) == curve_cells(without)


def test_marks_outside_the_window_are_left_out() -> None:
    marks = (Mark(-1, "skip"), Mark(5000, "skip"), Mark(10**40, "knob"), Mark(-(10**40), "knob"))
    picture = draw(spec([1.0] * 100, marks=marks), WIDTH, HEIGHT)
    assert not styled(picture, "skip").strip()
    assert not styled(picture, "knob").strip()


def test_a_reference_line_is_dashed_and_named() -> None:
    values = [0.1, 10.0] * 5
    picture = draw(spec(values, axis="log10", lines=((1.0, "clip limit"),)), WIDTH, HEIGHT)
    assert "clip limit" in picture.text.splitlines()[0]
    rows = {row for row, _ in signs_at(picture, "╌", "line") if row > 0}
    assert rows == {7}


def test_a_reference_line_near_the_curve_widens_the_axis() -> None:
    picture = draw(spec([0.1, 0.4], axis="log10", lines=((1.0, "clip"),)), WIDTH, HEIGHT)
    assert {row for row, _ in signs_at(picture, "╌", "line") if row > 0} == {1}


@pytest.mark.parametrize("at", [math.nan, math.inf, 0.0, -1.0, 1e300])
def test_a_reference_line_that_cannot_be_shown_hides_no_curve(at: float) -> None:
    picture = draw(spec([0.1, 0.4], axis="log10", lines=((at, "clip"),)), WIDTH, HEIGHT)
    assert curve_cells(picture) == curve_cells(draw(spec([0.1, 0.4], axis="log10"), WIDTH, HEIGHT))


def test_two_curves_differ_by_their_dashes_and_are_named() -> None:
    picture = draw(spec([4.0] * 101, [1.0] * 101, axis="log10"), WIDTH, HEIGHT)
    solid, dashed = curve_cells(picture, "curve0"), curve_cells(picture, "curve1")
    assert len(solid) == INSIDE
    assert INSIDE // 2 <= len(dashed) <= INSIDE // 2 + 1
    first = picture.text.splitlines()[0]
    assert "⠒⠒⠒ curve 0" in first
    assert "⠒ ⠒ curve 1" in first


def test_five_curves_differ_by_their_dashes() -> None:
    curves = tuple(Curve(f"c{n}", series([float(n)] * 200)) for n in range(5))
    picture = draw(PlotSpec("x", "x", "", curves, 0, 199), WIDTH, HEIGHT)
    drawn = [frozenset(column for _, column in curve_cells(picture, f"curve{n}")) for n in range(5)]
    legend = "".join(text for text, _ in picture.rows[0])
    samples = [legend.partition(f" c{n}")[0][-3:] for n in range(5)]
    assert len(set(samples)) == 5
    assert len(drawn[4]) <= len(drawn[1]) // 2 + 1, "one cell in four, where the second has half"
    ascii_rows = draw(PlotSpec("x", "x", "", curves, 0, 199), WIDTH, HEIGHT, ascii_only=True).rows
    signs = {style: text.strip()[0] for row in ascii_rows[1:] for text, style in row
             if style.startswith("curve") and text.strip()}  # fmt: skip
    assert len(set(signs.values())) == 5


def test_where_two_curves_meet_the_first_is_seen() -> None:
    picture = draw(spec([4.0] * 101, [4.0] * 101), WIDTH, HEIGHT)
    assert len(curve_cells(picture, "curve0")) == INSIDE
    assert not curve_cells(picture, "curve1")


def test_one_point_of_a_dashed_curve_is_seen_in_any_column() -> None:
    for step in range(20):
        values = [math.nan] * step + [2.0]
        picture = draw(spec([1.0] * 21, values), WIDTH, HEIGHT)
        assert len(curve_cells(picture, "curve1")) == 1, step


@pytest.mark.parametrize("place", [0, 1, 777, 4321, 99_999])
def test_the_only_overflow_of_a_long_run_is_seen_as_a_bar(place: int) -> None:
    counts = [0.0] * 100_000
    counts[place] = 1.0
    counts[50_000] = 5000.0  # beside which 1 is nothing
    picture = draw(spec(counts, floor_zero=True), WIDTH, HEIGHT)
    bottom = HEIGHT - 3
    found = cells(picture)
    base = "⣀"
    higher = {x for x in range(LEFT, WIDTH - 1) if found[bottom, x][0] not in (base, " ")}
    near = column_of(place, 99_999)
    assert higher & {near - 1, near, near + 1}
    assert any(abs(x - column_of(50_000, 99_999)) <= 1 for x in higher)
    assert len(higher) <= 4


def test_counts_of_zero_are_a_line_at_the_bottom() -> None:
    drawn = curve_cells(draw(spec([0.0] * 50, floor_zero=True), WIDTH, HEIGHT))
    assert {row for row, _ in drawn} == {HEIGHT - 3}


def test_a_bar_is_as_high_as_its_count() -> None:
    counts = [0.0] * 11
    counts[2], counts[8] = 4.0, 2.0
    drawn = curve_cells(draw(spec(counts, floor_zero=True), WIDTH, HEIGHT))
    heights = {}
    for step in (2, 8):
        heights[step] = sum(1 for _, column in drawn if column == column_of(step, 10))
    assert heights == {2: 13, 8: 7}  # of 13 rows


def test_an_empty_plot_says_so() -> None:
    picture = draw(spec([], empty="no loss seen yet"), WIDTH, HEIGHT)
    assert styled(picture, "empty").strip() == "no loss seen yet"
    assert "┤" not in picture.text


def test_a_window_without_a_value_does_not_claim_that_there_was_none() -> None:
    curve = Curve("x", series([1.0, 2.0]))
    picture = draw(PlotSpec("x", "x", "2", (curve,), 5000, 6000), WIDTH, HEIGHT)
    assert styled(picture, "empty").strip() == "nothing measured in these steps"


def test_ticks_stand_in_the_row_of_their_value() -> None:
    picture = draw(spec([0.0, 10.0, 5.0, 5.0, 5.0]), WIDTH, HEIGHT)
    lines = picture.text.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("    5┤"))
    found = curve_cells(picture)
    assert (row, column_of(4, 10)) in found


def test_without_braille_everything_is_ascii() -> None:
    marks = (Mark(3, "skip"), Mark(6, "knob"))
    asked = spec(
        [1.0, 3.0, math.nan, 2.0] * 3, [2.0] * 12,
        title="größe 名", value="1 · 2", marks=marks, lines=((2.5, "clip"),),
    )  # fmt: skip
    for size in ((60, 16), (30, 8), (12, 4), (10, 1)):
        assert draw(asked, *size, ascii_only=True).text.isascii(), size
    text = draw(asked, WIDTH, HEIGHT, ascii_only=True).text
    assert {"v", ":", "!", "+", "|", "~"} <= set(text)


def test_a_small_plot_is_the_title_over_the_bare_curve() -> None:
    picture = draw(spec([1.0, 2.0, 3.0] * 4), 12, 3)
    lines = picture.text.splitlines()
    assert lines[0] == "loss  0.25  "
    assert any(ord(sign) in BRAILLE for sign in lines[1] + lines[2])


def test_a_single_row_is_the_title() -> None:
    assert draw(spec([1.0]), 12, 1).text == "loss  0.25  "
    assert draw(spec([1.0], title="gradient norm"), 12, 1).text == "gradi…  0.25"


def test_foreign_words_are_plain_text_of_known_width() -> None:
    words = "[b]漢字\x1b[31m\r\n\u202e\u200b👩‍👩‍👧\ufe0fé\x00"
    for width in range(1, 70):
        picture = draw(spec([1.0], [2.0], title=words, value=words, empty=words), width, 12)
        for row in picture.rows:
            text = "".join(part for part, _ in row)
            assert cell_len(text) == width == sum(cell_len(part) for part, _ in row)
            assert text.isprintable()
    assert "[b]漢字[31m" in picture.text


def test_nothing_fits_nowhere() -> None:
    assert draw(spec([1.0]), 0, 0).rows == ()
    assert draw(spec([1.0]), 0, 2).rows == ((), ())
    assert draw(spec([1.0]), -4, -4).rows == ()
