"""What is on the screen, from before torch is loaded to after the script has failed."""

from __future__ import annotations

import pytest

from ampwatch.record import RunEnd, StepRecord
from ampwatch.tui import main_screen, waiting
from ampwatch.tui.plot_view import PlotView
from ampwatch.tui.waiting import waiting_for
from tests.tui.fakes import FakeJob, dashboard, recording
from tests.tui.reading import frame, screen_text


async def test_the_first_frame_says_that_torch_is_loading() -> None:
    app = dashboard(FakeJob(), name="train.py")
    async with app.run_test(size=(80, 24)):
        text = screen_text(app)
        assert "STARTING" in text
        assert "train.py" in text
        assert "Starting: torch is loading" in text


async def test_then_it_waits_for_the_first_step_and_then_shows_plots() -> None:
    job = FakeJob()
    job.hello()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)):
        await frame(app)
        assert "Waiting for the first optimizer step" in screen_text(app)
        job.train(2)
        await frame(app)
        text = screen_text(app)
        assert "Waiting" not in text
        for title in ("loss", "scale", "gradient norm", "non-finite"):
            assert title in text


async def test_while_it_waits_the_latest_output_is_on_screen() -> None:
    job = FakeJob()
    job.output.feed(b"downloading 45%\r")
    app = dashboard(job)
    async with app.run_test(size=(80, 24)):
        await frame(app)
        assert "The script says: downloading 45%" in screen_text(app)


def test_a_script_that_never_steps_is_told_what_is_looked_for() -> None:
    job = FakeJob()
    job.hello()
    app = dashboard(job)
    app.session.pump()
    run = app.session.run
    assert waiting_for(run, "starting", 1.0)[1] == ""
    headline, more = waiting_for(run, "starting", waiting.PATIENCE + 5)
    assert headline == "No optimizer step in 20 seconds."
    assert "torch.optim" in more
    assert "GradScaler.step()" in more
    assert waiting_for(run, "finished", 1.0) == (
        "The script ended without an optimizer step.",
        waiting.LOOKED_FOR,
    )


async def test_the_status_is_complete_at_80x24() -> None:
    job = FakeJob()
    job.hello(total_steps=5000)
    job.train(153)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)):
        await frame(app)
        text = screen_text(app)
        # 65536 doubles after 50 clean steps; made-up gradients then overflow at 2^17 at once.
        skipped = app.session.run.skipped
        assert skipped > 0
        for words in (
            "RUNNING",
            "linear",
            "cpu",
            "float16",
            "dynamic",
            "step 153/5,000",
            "30.0 steps/s",
            "scale 2^",
            f"{skipped} ({100 * skipped / 153:.1f} %)",
            "grows",
            "overhead 0.4 %",
        ):
            assert words in text, words


async def test_metrics_of_the_loop_are_on_screen() -> None:
    job = FakeJob()
    job.hello()
    job.metrics = {"accuracy": 0.9312}
    job.train(5)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)):
        await frame(app)
        assert "accuracy 0.931" in screen_text(app)


async def test_a_failure_is_on_every_tab_and_its_traceback_under_output() -> None:
    job = FakeJob()
    job.hello()
    job.train(40)
    job.fail()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        text = screen_text(app)
        assert "FAILED" in text
        assert "RuntimeError: shapes (64x32) and (64x1) do not fit" in text
        assert "5 Output !" in text
        assert "gradient norm" in text
        await pilot.press("5")
        await pilot.pause()
        text = screen_text(app)
        assert "Traceback (most recent call last):" in text
        assert 'File "train.py", line 41, in <module>' in text


async def test_a_recording_shows_how_it_ended() -> None:
    app = recording(StepRecord(0, 0.0, 1.0, scale=8.0), RunEnd("finished", 1), name="old.jsonl")
    async with app.run_test(size=(80, 24)):
        await frame(app)
        text = screen_text(app)
        assert "FINISHED" in text
        assert "old.jsonl" in text
        assert "scale 2^3" in text


async def test_a_recording_without_steps_says_so() -> None:
    app = recording(RunEnd("finished", 0))
    async with app.run_test(size=(80, 24)):
        await frame(app)
        assert "This recording holds no optimizer step." in screen_text(app)


@pytest.mark.parametrize(
    ("size", "plots"),
    [
        ((300, 80), {"loss", "scale", "grad_norm", "nonfinite"}),
        ((160, 50), {"loss", "scale", "grad_norm", "nonfinite"}),
        ((80, 24), {"loss", "scale", "grad_norm", "nonfinite"}),
        ((50, 40), {"loss", "scale", "grad_norm", "nonfinite"}),
        ((50, 24), {"loss", "scale"}),
        ((100, 14), {"loss", "scale"}),
    ],
)
async def test_each_size_shows_the_plots_it_has_room_for(
    size: tuple[int, int], plots: set[str]
) -> None:
    job = FakeJob()
    job.hello()
    job.train(40)
    app = dashboard(job)
    async with app.run_test(size=size):
        await frame(app)
        seen = {plot.id for plot in app.screen.query(PlotView) if plot.display and plot.size.area}
        assert seen == plots


@pytest.mark.parametrize("size", [(30, 24), (80, 8), (1, 1), (5, 2)])
async def test_a_window_too_small_says_so_and_comes_back(size: tuple[int, int]) -> None:
    job = FakeJob()
    job.hello()
    job.train(40)
    app = dashboard(job)
    async with app.run_test(size=size) as pilot:
        await frame(app)
        assert app.screen.query_one("#too-small").display
        assert not app.screen.query_one("#panels").display
        await pilot.resize_terminal(80, 24)
        await frame(app)
        assert "gradient norm" in screen_text(app)
        assert main_screen.TOO_SMALL not in screen_text(app)


async def test_nothing_is_drawn_when_nothing_came(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    job = FakeJob()
    job.hello()
    job.train(40)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.pause()
        drawn: list[str] = []
        for widget in app.screen.query("PlotView, StatusLines, EventLine, TabStrip"):
            monkeypatch.setattr(widget, "refresh", lambda *a, w=widget, **k: drawn.append(str(w)))
        await frame(app)
        assert drawn == []
        job.train(1)
        await frame(app)
        assert len([name for name in drawn if name.startswith("PlotView")]) == 4
