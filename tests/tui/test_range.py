"""The Range tab: what it says of a detail step, and how keys move it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ampwatch.formats import FLOAT16
from ampwatch.record import ActivationStats, Exponents, StepRecord, TensorStats
from ampwatch.run import Run
from ampwatch.run.ranges import Fit, fit, spread_of
from ampwatch.tui.panels.range import Range
from ampwatch.tui.panels.range_choice import choose, real_headroom
from ampwatch.tui.panels.range_words import (
    NO_FLOW,
    NO_OUTPUT,
    NOT_RECORDED,
    headroom_words,
    looked_at,
    numbers,
    range_spec,
    scales_words,
)
from ampwatch.tui.panels.tensors import Tensors
from tests.tui.fakes import NAMES, FakeJob, dashboard, recording
from tests.tui.reading import frame, screen_text

STATS = TensorStats(
    *(40, ("head", "body"), (1.0, 1.0), (2.0, 2.0**-22), (5, 0), (0, 0), (15, 10)),
    exponents=(Exponents(-3, (4, 3, 2, 0, 1), zeros=5), Exponents(-30, (9, 0, 0, 0, 0, 0, 0, 1))),
    scale=2.0**10,
)


def trained(steps: int = 5) -> FakeJob:
    job = FakeJob()
    job.hello()
    job.train(steps)
    return job


def recorded(scale: float | None = 2.0**10, stats: TensorStats = STATS):  # type: ignore[no-untyped-def]
    return recording(StepRecord(40, 1.0, 1.0, scale=scale, scaler="dynamic"), stats)


def test_the_figures_are_those_of_the_fit() -> None:
    spread = spread_of(STATS)
    assert spread is not None
    told = fit(spread, FLOAT16, 2.0**10)
    rows = dict(numbers(spread, told, FLOAT16, ("headroom, at most", told.headroom)))
    # Of 20 values that are not 0, nine are about 2^-30: times 2^10 subnormal, unscaled 0.
    assert rows == {
        "becomes 0 now": "0 %",
        "becomes 0 without scaling": "45 %",
        "subnormal now (bits lost)": "45 %",
        "beyond 65504 now": "0 %",
        "headroom, at most": "5.0 doublings",  # from 2 · 2^10 to nearly 2^16
        "scales that lose nothing": "2^6 … 2^14",
        "0 already": "20 %",
        "inf or NaN": "none",
    }


def test_headroom_and_scales_in_words() -> None:
    spread = spread_of(STATS)
    assert spread is not None
    assert headroom_words(spread, -1.5) == "\u22121.5 doublings"
    assert headroom_words(spread, None) == "–"
    assert scales_words(spread, Fit(0, 0, 0, 0, 1.0, 3, 2)) == "none"
    assert scales_words(spread, Fit(0, 0, 0, 0, 1.0, -3, -3)) == "2^\u22123"
    assert scales_words(spread, Fit(0, 0, 0, 0, None, None, None)) == "–"
    overflowed = replace(spread, nonfinite=3)
    assert headroom_words(overflowed, None) == "none: inf or NaN"
    assert scales_words(overflowed, Fit(0, 0, 0, 0, None, 3, None)) == "unknown"


def test_a_sample_is_said_to_be_one() -> None:
    large = TensorStats(
        *(1, ("a",), (1.0,), (1.0,), (0,), (0,), (4000,)), exponents=(Exponents(-1, (1000,)),)
    )
    spread = spread_of(large)
    assert spread is not None
    assert looked_at(spread).startswith("A sample: 1,000 of 4,000 values (25 %)")
    whole = spread_of(STATS)
    assert whole is not None
    assert looked_at(whole) == "All 25 values were looked at."


def test_the_lower_band_is_the_upper_one_times_the_scale() -> None:
    spread = spread_of(STATS)
    assert spread is not None
    spec = range_spec(spread, FLOAT16, 2.0**10)
    assert (spec.true.first, spec.scaled.first) == (-30, -20)
    assert spec.scaled.label == "scaled: × 2^10"
    unscaled = range_spec(spread, FLOAT16, None)
    assert unscaled.scaled.first == -30
    assert unscaled.scaled.label == "no loss scaling: as above"


def test_a_detail_step_that_is_mostly_inf_and_nan_does_not_hide_the_one_before() -> None:
    run = Run()
    spoilt = replace(
        STATS,
        step=44,
        nonfinite=(15, 1),
        exponents=(Exponents(0, (), infinite=15), Exponents(-30, (9,), nan=1)),
    )
    run.add(spoilt)

    def shown(tensor: str | None = None) -> tuple[int, str]:
        chosen = choose(run, tensor, flowing=False)
        assert chosen is not None
        return chosen.step, chosen.hidden

    assert shown() == (44, "")  # there is nothing better yet
    run.add(STATS)
    assert shown() == (40, "")
    run.add(spoilt)
    assert shown() == (40, "At step 44 inf and NaN hide the values.")
    assert shown("body") == (44, "")  # one NaN among ten values hides little


async def test_before_the_first_detail_step_it_says_what_is_waited_for() -> None:
    job = FakeJob()
    job.hello()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("2")
        await pilot.pause()
        assert "No gradient has been measured yet." in screen_text(app)
        job.train(2)
        await frame(app)
        text = screen_text(app)
        assert "No gradient" not in text
        assert "step 0 · fp16" in text


async def test_a_log_from_before_exponents_says_so() -> None:
    old = TensorStats(3, ("a",), (1.0,), (1.0,), (0,), (0,), (4,))
    app = recorded(stats=old)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("2")
        await pilot.pause()
        assert NOT_RECORDED in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50)])
async def test_bands_zones_figures_and_sampling_are_on_screen(size: tuple[int, int]) -> None:
    app = recorded()
    async with app.run_test(size=size) as pilot:
        await frame(app)
        await pilot.press("2")
        await pilot.pause()
        text = screen_text(app)
        for words in (
            "parameter gradients of the whole model (2)",
            "step 40",
            "⣿ true values",
            "█ scaled: × 2^10",
            "becomes 0",
            "subnormal",
            "beyond 65504",
            "headroom, at most",
            "5.0 doublings",
            "2^6 … 2^14",
            "All 25 values were looked at.",
        ):
            assert words in text, words
        assert "Measured at" not in text  # the scale is still the one of the detail step


async def test_a_scale_that_has_moved_since_slides_the_band_and_is_said() -> None:
    job = trained(5)
    app = dashboard(job)
    async with app.run_test(size=(100, 30)) as pilot:
        await frame(app)
        await pilot.press("2")
        view = app.screen.query_one(Range).view
        assert view.spec is not None
        before = view.spec
        await pilot.press("left_square_bracket", "left_square_bracket")
        job.train(1)
        await frame(app)
        assert view.spec.true == before.true
        assert view.spec.scaled.first == before.scaled.first - 2
        text = " ".join(screen_text(app).split())
        assert "Measured at scale 2^16" in text
        assert "the scale now, 2^14." in text


async def test_f_goes_through_the_formats() -> None:
    app = recorded()
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("2")
        seen = []
        for _ in range(4):
            await pilot.press("f")
            await pilot.pause()
            seen.append(next(n for n in ("bf16", "e4m3", "e5m2", "fp16") if n in screen_text(app)))
        assert seen == ["bf16", "e4m3", "e5m2", "fp16"]


async def test_enter_on_a_tensor_shows_its_range_and_escape_the_whole_model_again() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("3", "o", "down", "enter")
        await pilot.pause()
        assert app.screen.query_one(Range).tensor == NAMES[1]
        assert f"{NAMES[1]} (esc: whole model) · step 0" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "of the whole model (4) · step 0" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen.query_one("#overview").display


async def test_a_tensor_is_chosen_by_a_click_and_stays_chosen_when_the_order_turns() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("3", "o")
        await pilot.click("#tensors-table", offset=(4, 2))
        await pilot.pause()
        assert app.screen.query_one(Range).tensor == NAMES[2]
        await pilot.press("3", "O")
        table = app.screen.query_one(Tensors).table
        assert table.shown[table.place].name == NAMES[2]
        await pilot.press("down", "down", "down", "down")
        assert table.place == len(NAMES) - 1
        await pilot.press("up")
        assert table.place == len(NAMES) - 2


async def test_a_tensor_that_the_latest_detail_step_lacks_is_said_to_be_missing() -> None:
    app = recorded()
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("2")
        app.screen.query_one(Range).choose("gone.[red]weight")
        await pilot.pause()
        assert "Press esc for the whole model." in " ".join(screen_text(app).split())
        await pilot.press("escape")
        await pilot.pause()
        assert "of the whole model (2)" in screen_text(app)


FLOW = ActivationStats(
    40,
    ("head", "head", "body"),
    after=(True, False, False),
    dtype=("float32", "float16", "float16"),
    max=(2.0**10, 2.0**3, 2.0**-20),
    nonfinite=(0, 0, 0),
    size=(2, 6, 4),
    exponents=(Exponents(9, (1, 1)), Exponents(1, (4, 1, 1)), Exponents(-23, (3, 0, 0, 1))),
    scale=2.0**10,
)


def test_the_real_headroom_is_that_of_the_largest_gradient_of_either_kind() -> None:
    run = Run()
    run.add(STATS)
    assert real_headroom(run, FLOAT16, 2.0**10) is None  # activation gradients were not seen
    run.add(FLOW)
    # The largest in float16 is 2^3: 2^3 times 2^10 can be doubled three times below 65504.
    assert real_headroom(run, FLOAT16, 2.0**10) == pytest.approx(3.0, abs=0.001)
    run.add(replace(FLOW, step=90))
    assert real_headroom(run, FLOAT16, 2.0**10) is None  # of another step than the parameters'
    small = Run()
    small.add(STATS)
    small.add(replace(FLOW, max=(2.0**10, 0.5, 2.0**-20)))
    assert real_headroom(small, FLOAT16, 2.0**10) == pytest.approx(5.0, abs=0.001)  # a parameter: 2


async def test_a_switches_to_activation_gradients_and_back() -> None:
    app = recording(StepRecord(40, 1.0, 1.0, scale=2.0**10, scaler="dynamic"), STATS, FLOW)
    async with app.run_test(size=(100, 30)) as pilot:
        await frame(app)
        await pilot.press("2")
        await pilot.pause()
        text = " ".join(screen_text(app).split())
        assert "headroom, at most 5.0 doublings" in text
        assert "With activation gradients (a) the headroom is 3.0 doublings." in text
        await pilot.press("a")
        await pilot.pause()
        text = " ".join(screen_text(app).split())
        assert "float16 activation gradients of the whole model (2) · step 40" in text
        assert "headroom, real 3.0 doublings" in text
        assert "All 10 values were looked at." in text
        view = app.screen.query_one(Range).view
        assert view.spec is not None
        assert (view.spec.true.first, view.spec.scaled.first) == (-23, -13)
        await pilot.press("a")
        await pilot.pause()
        assert "parameter gradients of the whole model (2)" in screen_text(app)


async def test_a_chosen_parameter_shows_the_output_of_its_module() -> None:
    names = ("head.weight", "body.weight")
    stats = replace(STATS, name=names)
    app = recording(StepRecord(40, 1.0, 1.0, scale=2.0**10, scaler="dynamic"), stats, FLOW)
    async with app.run_test(size=(100, 30)) as pilot:
        await frame(app)
        await pilot.press("2", "a")
        panel = app.screen.query_one(Range)
        panel.choose("body.weight")
        await pilot.pause()
        text = " ".join(screen_text(app).split())
        assert "output of body in float16 (esc: whole model) · step 40" in text
        assert "headroom of these 26.0 doublings" in text  # from 2^-20 times 2^10 to nearly 2^16
        panel.choose("gone.weight")
        await pilot.pause()
        assert NO_OUTPUT in " ".join(screen_text(app).split())


async def test_without_activation_gradients_it_says_why() -> None:
    app = recorded()
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("2", "a")
        await pilot.pause()
        assert NO_FLOW in " ".join(screen_text(app).split())
        await pilot.press("a")
        await pilot.pause()
        assert "of the whole model (2)" in screen_text(app)
