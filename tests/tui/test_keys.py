"""Every key does what it says, or answers with a sentence why it cannot."""

from __future__ import annotations

import pytest

from ampwatch import controls
from ampwatch.controls import Request
from ampwatch.record import RunEnd, StepRecord
from ampwatch.tui.help import HelpScreen
from ampwatch.tui.knobs import TURNS
from ampwatch.tui.overview import Overview
from ampwatch.tui.picture import aligned
from ampwatch.tui.plot_view import PlotView
from tests.tui.fakes import FakeJob, dashboard, notice, recording
from tests.tui.reading import frame, messages, screen_text

TAB_KEYS = (
    ("2", "range"),
    ("3", "tensors"),
    ("4", "events"),
    ("5", "output"),
    ("1", "overview"),
)


def trained(steps: int = 5) -> FakeJob:
    job = FakeJob()
    job.hello()
    job.train(steps)
    return job


def test_every_knob_but_stop_has_a_key_and_no_key_is_given_twice() -> None:
    keys = [turn.key for turn in TURNS]
    assert len(set(keys)) == len(keys)
    beside = {controls.STOP, controls.EXPLAIN}  # leaving, and the explain mode
    assert {turn.knob for turn in TURNS} == set(controls.KNOBS) - beside


@pytest.mark.parametrize(
    ("key", "request_"),
    [
        ("space", Request("pause", True)),
        ("full_stop", Request("step", None)),
        ("d", Request("dtype", "bfloat16")),
        ("s", Request("scaler", "static")),
        ("t", Request("target_gain", 10.0)),
        ("T", Request("target_gain", 0.1)),
        ("g", Request("loss_gain", 10.0)),
        ("G", Request("loss_gain", 0.1)),
        ("right_square_bracket", Request("scale", 2.0)),
        ("left_square_bracket", Request("scale", 0.5)),
        ("i", Request("inject", None)),
    ],
)
async def test_a_key_sends_its_request(key: str, request_: Request) -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(key)
        assert job.requests == [request_]


async def test_the_dtype_goes_on_from_the_one_in_force_and_from_the_one_just_asked_for() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("d", "d", "d")
        asked = [request.value for request in job.requests]
        assert asked == ["bfloat16", "float32", "float16"]
        job.values["dtype"] = "bfloat16"  # what another way of changing it came to
        job.train(1)
        await frame(app)
        await pilot.press("d")
        assert job.requests[-1] == Request("dtype", "float32")


async def test_zero_takes_both_gains_back_to_one() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("t", "t", "g", "0")
        assert job.requests[-2:] == [Request("target_gain", 1.0), Request("loss_gain", 1.0)]
        assert (job.target_gain, job.loss_gain) == (1.0, 1.0)


async def test_slower_starts_from_the_measured_speed_and_faster_ends_in_flat_out() -> None:
    job = trained(60)  # at 30 steps a second
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("greater_than_sign")
        assert job.requests == []
        assert "already runs flat out" in messages(app)[-1]
        await pilot.press("less_than_sign")
        assert job.requests[-1] == Request("speed", 15.0)
        await pilot.press("greater_than_sign")
        assert job.requests[-1] == Request("speed", 30.0)
        await pilot.press("greater_than_sign", "greater_than_sign")
        assert job.requests[-1] == Request("speed", None)  # 30 is less than was asked for


async def test_pause_is_plain_to_see_and_gains_are_named() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        assert "RUNNING" in screen_text(app)
        await pilot.press("space", "t", "t")
        await frame(app)
        assert "PAUSED" in screen_text(app)
        assert "targets ×100" in screen_text(app)
        await pilot.press("space")
        await frame(app)
        assert "RUNNING" in screen_text(app)


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.name)
async def test_a_knob_of_a_recording_answers_why_not(turn: object) -> None:
    app = recording(StepRecord(0, 0.0, 1.0), RunEnd("finished", 1))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(turn.key)  # type: ignore[attr-defined]
        assert messages(app) == ["This is a recording: there is no training to change."]


async def test_a_knob_of_an_ended_run_answers_why_not() -> None:
    job = trained()
    job.finish()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("t")
        await pilot.press("t", "g", "t")  # a key held down does not pile its answers up
        assert messages(app) == ["The training has ended. Press r to start it again."]
        assert job.requests == []


async def test_a_refused_request_is_shown_with_its_reason_and_takes_the_value_back() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("t")
        text = "this loop has no targets that [bold]could[/bold] be enlarged"
        job.say(notice(text, knob="target_gain", value=1.0, refused=True))
        await frame(app)
        assert messages(app) == [text]
        assert "targets ×10" not in screen_text(app)


async def test_window_and_loss_axis_go_round() -> None:
    job = trained(3000)
    app = dashboard(job)
    async with app.run_test(size=(120, 40)) as pilot:
        await frame(app)
        shown = []
        for _ in range(3):
            await pilot.press("z")
            shown.append(app.look.steps(2999))
        assert shown == [(2000, 2999), (2900, 2999), (0, 2999)]
        before = app.look.loss_axis
        await pilot.press("l")
        first = app.look.loss_axis
        await pilot.press("l")
        assert before is None
        assert {first, app.look.loss_axis} == {"linear", "log10"}


async def test_one_plot_is_enlarged_and_escape_brings_all_back() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        overview = app.screen.query_one(Overview)
        await pilot.press("tab", "tab", "enter")
        assert overview.enlarged == "scale"
        visible = [plot.id for plot in overview.query(PlotView) if plot.display]
        assert visible == ["scale"]
        await pilot.press("tab")
        assert overview.enlarged == "grad_norm"
        await pilot.press("escape")
        assert overview.enlarged is None
        assert len([plot for plot in overview.query(PlotView) if plot.display]) == 4
        await pilot.press("m")
        assert overview.enlarged == "grad_norm"
        await pilot.press("m")
        assert overview.enlarged is None


async def test_numbers_and_clicks_open_tabs() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(80, 24)) as pilot:
        for key, name in TAB_KEYS:
            await pilot.press(key)
            assert [panel.id for panel in app.screen.query("#panels > *") if panel.display] == [
                name
            ]
        await pilot.click("#tabs", offset=(24, 0))
        assert app.screen.query_one("#tensors").display


async def test_restart_starts_the_script_and_forgets_the_run() -> None:
    job = trained(50)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("t")
        await pilot.press("r")
        await frame(app)
        assert job.calls == ["restart"]
        assert app.session.run.steps == 0
        assert "Waiting for the first optimizer step" in screen_text(app)
        job.train(3)
        await frame(app)
        assert app.session.run.steps == 3


async def test_a_recording_cannot_be_restarted_and_says_so() -> None:
    app = recording(StepRecord(0, 0.0, 1.0))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("r")
        assert messages(app) == ["This is a recording: there is no script to start again."]


async def test_help_lists_every_key_that_has_words() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(160, 60)) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        text = app.screen.keys().plain
        for turn in TURNS:
            assert turn.words in text
        for words in ("One plot at full size", "Sort by the next column", "Go to the end"):
            assert words in text
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)


async def test_the_palette_offers_what_the_keys_offer() -> None:
    app = dashboard(trained())
    async with app.run_test(size=(80, 24)):
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert {turn.words for turn in TURNS} <= set(titles)
        assert len(titles) == len(set(titles))
        pause = next(
            each for each in app.get_system_commands(app.screen) if each.help == "key: space"
        )
        assert pause.title == controls.PAUSE.words


async def test_a_picture_is_saved_under_the_run_and_step(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    app = dashboard(trained(7))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("x", "x")
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["linear-step-7-2.svg", "linear-step-7.svg"]
        assert messages(app)[0] == f"Saved {tmp_path / 'linear-step-7.svg'}"
        assert "RUNNING" in (tmp_path / names[1]).read_text(encoding="utf-8")


def test_blanks_in_a_picture_are_as_wide_as_the_dots_beside_them() -> None:
    svg = "<text x='1'>\u28ff&#160;\u2801</text><text>a&#160;b</text>"
    assert aligned(svg) == "<text x='1'>\u28ff\u2800\u2801</text><text>a&#160;b</text>"


async def test_a_picture_that_cannot_be_saved_says_why(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setattr("ampwatch.tui.app.Path.cwd", lambda: folder / "never-made")
    app = dashboard(trained())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("x")
        assert "could not be saved" in messages(app)[-1]


async def test_the_palette_opens_and_runs_what_is_chosen() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(100, 30)) as pilot:
        await frame(app)
        await pilot.press("ctrl+p")
        await pilot.pause(0.3)
        await pilot.press(*"gradients")
        await pilot.pause(0.5)
        await pilot.press("enter")
        await pilot.pause(0.2)
        assert job.requests == [Request("inject", None)]
