"""The layout for a projector: toggled by key, in every size, with explain mode open, and back."""

from __future__ import annotations

import numpy as np
import pytest
from textual.widgets import Digits, Footer

from ampwatch.controls import Controls
from ampwatch.plot.raster import thickened
from ampwatch.record import StepRecord
from ampwatch.run import Run
from ampwatch.tui.app import DashboardApp
from ampwatch.tui.plot_view import PlotView
from ampwatch.tui.presenter import told
from ampwatch.tui.themes import CONTRAST_DARK, CONTRAST_LIGHT, DARK, LIGHT
from tests.tui.fakes import FakeJob, dashboard
from tests.tui.reading import frame, screen_text

SIZES = ((100, 30), (80, 24), (160, 50), (60, 24), (36, 11))


def trained(steps: int = 40) -> FakeJob:
    job = FakeJob()
    job.hello()
    job.train(steps)
    job.paused = True
    return job


def plots(app: DashboardApp) -> list[str | None]:
    return [plot.id for plot in app.screen.query(PlotView) if plot.display]


def digits(app: DashboardApp) -> list[str]:
    """The large figures that are on screen."""
    return [each.value for each in app.screen.query(Digits) if each.region.area]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_it_is_toggled_and_leaves_the_screen_as_it_was(size: tuple[int, int]) -> None:
    app = dashboard(trained())
    async with app.run_test(size=size) as pilot:
        await frame(app)
        before, shown = screen_text(app), plots(app)
        await pilot.press("p")
        await frame(app)
        assert screen_text(app) != before
        assert app.theme == CONTRAST_DARK.name
        await pilot.press("p")
        await frame(app)
        assert screen_text(app) == before
        assert plots(app) == shown
        assert app.theme == DARK.name


@pytest.mark.parametrize("size", SIZES[:3], ids=str)
async def test_it_has_large_digits_two_plots_and_no_small_print(size: tuple[int, int]) -> None:
    job = trained()
    job.inject = True
    job.train(1)
    app = dashboard(job)
    async with app.run_test(size=size) as pilot:
        await frame(app)
        await pilot.press("p")
        await frame(app)
        assert digits(app)[:2] == ["2^16", "1"]
        assert plots(app) == ["loss", "scale"]
        text = screen_text(app)
        for small in ("overhead", "Overview", "Enlarge"):
            assert small not in text
        for word in ("loss scale", "skipped steps", "RUNNING", "float16", "scaler dynamic"):
            assert word in text
        assert not app.screen.query_one(Footer).display
        heights = [app.screen.query_one(f"#{name}").size.height for name in ("loss", "scale")]
        assert min(heights) >= (size[1] - 8) // 2
        assert "▼" in text  # the skipped step is marked


async def test_where_there_is_no_room_for_digits_the_status_lines_stay() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(36, 11)) as pilot:
        await frame(app)
        await pilot.press("p")
        await frame(app)
        assert digits(app) == []
        assert "RUNNING" in screen_text(app)
        await pilot.resize_terminal(100, 30)
        await frame(app)
        assert digits(app)[0] == "2^16"
        await pilot.resize_terminal(1, 1)
        await pilot.resize_terminal(120, 40)
        await pilot.press("p")
        await frame(app)
        assert plots(app) == ["loss", "scale", "grad_norm", "nonfinite"]
        assert digits(app) == []


async def test_it_goes_with_explain_mode() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(100, 30)) as pilot:
        await frame(app)
        await pilot.press("p", "e")
        await frame(app)
        text = screen_text(app)
        assert digits(app)[0] == "2^16"
        assert "forward → loss → scale" in text
        await pilot.press("full_stop")
        assert "Loss: one number" in screen_text(app)
        await pilot.press("p")
        await frame(app)
        assert "stage 2 of 9" in screen_text(app)
        assert "Leave" in screen_text(app)
        await pilot.press("e")
        assert len(plots(app)) == 4


async def test_one_enlarged_plot_stays_enlarged() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(100, 30)) as pilot:
        await frame(app)
        await pilot.press("tab", "tab", "tab", "m", "p")
        await frame(app)
        assert plots(app) == ["grad_norm"]
        await pilot.press("m")
        await frame(app)
        assert plots(app) == ["loss", "scale"]
        await pilot.press("p")
        await frame(app)
        assert len(plots(app)) == 4


async def test_a_light_theme_becomes_a_light_one_and_a_theme_chosen_meanwhile_stays() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(100, 30)) as pilot:
        app.theme = LIGHT.name
        await pilot.press("p")
        assert app.theme == CONTRAST_LIGHT.name
        await pilot.press("p")
        assert app.theme == LIGHT.name
        await pilot.press("p")
        app.theme = "nord"
        await pilot.press("p")
        assert app.theme == "nord"


async def test_the_figures_are_those_of_the_run() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(100, 30)):
        await frame(app)
        run, panel = app.session.run, app.explaining._panel
        panel.values["target_gain"] = 1000.0
        job.scale = 2.0**-3
        job.train(1)
        await frame(app)
        assert app.session.run.last is not None
        shown = told(run, panel, "running", "")
        assert shown.scale == "2^-3"  # with the minus sign that the digits know
        assert shown.step == "step 41"
        assert shown.modes == ("float16", "scaler dynamic", "targets ×1000")


def test_of_several_optimizers_the_loss_is_always_that_of_the_first() -> None:
    run, panel = Run(), Controls()
    for step in range(3):
        for optimizer, loss in (("Adam", 2.5), ("Adam 2", 0.25)):
            run.add(StepRecord(step, 0.0, loss, optimizer=optimizer))
            assert told(run, panel, "running", "").loss == "2.50"


@pytest.mark.parametrize("theme", [CONTRAST_DARK, CONTRAST_LIGHT], ids=lambda theme: theme.name)
def test_its_colours_stand_out(theme) -> None:  # type: ignore[no-untyped-def]
    """WCAG's contrast ratio: 7 is its enhanced level for text."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    behind = luminance(theme.background)
    for name in ("foreground", "primary", "secondary", "accent", "success", "warning", "error"):
        light, dark = sorted((luminance(getattr(theme, name)), behind), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 7, name


def test_a_thick_curve_covers_the_thin_one_and_is_two_dots_high_everywhere() -> None:
    dots = np.zeros((8, 6), dtype=np.bool_)
    dots[[0, 3, 7, 7, 2, 2], range(6)] = True
    thick = thickened(dots)
    assert (thick | ~dots).all()
    assert (thick.sum(axis=0) >= 2).all()
    assert not thickened(np.zeros((4, 4), dtype=np.bool_)).any()
    assert thickened(np.ones((1, 1), dtype=np.bool_)).all()
