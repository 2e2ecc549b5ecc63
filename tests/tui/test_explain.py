"""Explain mode: one step taken apart, gone through by key, on a live run and on a recording."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ampwatch import controls
from ampwatch.controls import Request
from ampwatch.explain import stages
from ampwatch.record import Followed, Operation, RunEnd, StepAnatomy, StepRecord
from ampwatch.tui import explaining
from ampwatch.tui.app import DashboardApp
from ampwatch.tui.panels.explain import drawn, strip
from tests.anatomies import NAMES, SKIPPED, TAKEN
from tests.tui.fakes import FakeJob, dashboard, notice, recording
from tests.tui.reading import frame, messages, screen_text, tab_key

SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
ASKED = [Request("pause", True), Request("explain", None), Request("step", None)]


def trained(steps: int = 5) -> FakeJob:
    job = FakeJob()
    job.hello()
    job.train(steps)
    return job


def squeezed(text: str) -> str:
    """Without line ends and repeated blanks: sentences are wrapped."""
    return " ".join(text.split())


@SIZES
async def test_a_step_is_gone_through_stage_by_stage(size: tuple[int, int]) -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=size) as pilot:
        await frame(app)
        await pilot.press("e")
        assert job.requests == ASKED
        await frame(app)
        told = stages(replace(TAKEN, step=5), app.session.run.info.scaler)  # type: ignore[union-attr]
        assert tuple(stage.name for stage in told) == NAMES
        for number, stage in enumerate(told, 1):
            text = squeezed(screen_text(app))
            assert f"step 5 taken apart · stage {number} of {len(told)}" in text
            assert stage.title in text
            assert stage.text.split(". ")[0] in text
            if number < len(told):
                await pilot.press("full_stop")
                await frame(app)
        for number in range(len(told) - 1, 0, -1):
            await pilot.press("comma")
            assert f"stage {number} of" in screen_text(app)
        await pilot.press("comma")
        assert messages(app) == [explaining.FIRST]
        assert job.requests == ASKED  # going through asks for nothing


@SIZES
async def test_a_skipped_step_shows_where_inf_came_up(size: tuple[int, int]) -> None:
    job = trained()
    job.scale = 2.0**40  # every gradient overflows
    app = dashboard(job)
    async with app.run_test(size=size) as pilot:
        await frame(app)
        await pilot.press("e")
        await frame(app)
        await pilot.press("full_stop", "full_stop", "full_stop")
        text = screen_text(app)
        line = next(line for line in text.splitlines() if "inf starts here" in line)
        assert line.split()[:5] == ["linear", "in", "2", "fp16", "61440"]
        words = squeezed(text)
        assert "inf came up in the gradient of the result of linear in 2, in float16" in words
        for name in ("✗ gradients", "✗ check", "✗ step"):
            assert name in words
        await pilot.press("full_stop", "full_stop", "full_stop", "full_stop")
        words = squeezed(screen_text(app))
        assert "Step: skipped" in words
        assert "Adam.step was not called" in words
        assert "2.bias[0] is 0.5 before and after" in words


async def test_after_the_last_stage_the_next_step_is_taken() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("e")
        await frame(app)
        await pilot.press(*["full_stop"] * len(NAMES))
        assert job.requests == [*ASKED, *ASKED]
        await frame(app)
        assert "step 6 taken apart · stage 1 of 9" in screen_text(app)
        await pilot.press("comma")  # back to the last stage of the step before
        assert "step 5 taken apart · stage 9 of 9" in screen_text(app)
        await pilot.press("full_stop")
        assert "step 6 taken apart · stage 1 of 9" in screen_text(app)
        assert job.requests == [*ASKED, *ASKED]
        assert "Leave" in screen_text(app)  # the focus, and so the footer, has stayed


async def test_a_window_that_was_too_small_for_a_while_gives_the_keys_back() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("e")
        await frame(app)
        await pilot.press("full_stop")
        await pilot.resize_terminal(30, 8)
        await frame(app)
        await pilot.resize_terminal(80, 24)
        await frame(app)
        assert "stage 2 of" in screen_text(app)
        assert "Leave" in screen_text(app)
        await pilot.press("comma")
        assert "stage 1 of" in screen_text(app)


@pytest.mark.parametrize("key", ["e", "escape"])
async def test_leaving_goes_on_as_before(key: str) -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(tab_key("tensors"))
        await pilot.press("e")
        await frame(app)
        await pilot.press(key)
        assert job.requests[-1] == Request("pause", False)
        assert app.screen.query_one("#tensors").display
        await pilot.press("space", "e")
        await frame(app)
        sent = len(job.requests)
        await pilot.press(key)
        assert job.requests[sent:] == []  # it was paused before
        assert app.explaining._panel.value(controls.PAUSE) is True


async def test_another_tab_leaves_as_well() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("e")
        await frame(app)
        await pilot.press(tab_key("events"))
        await frame(app)
        assert not app.explaining.open
        assert job.requests[-1] == Request("pause", False)
        await pilot.press("full_stop")
        assert job.requests[-1] == Request("step", None)  # the key steps again


async def test_the_tensor_chosen_on_its_tab_is_followed() -> None:
    job = trained(21)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press(tab_key("tensors"), "down")
        chosen = app._main.tensors.chosen
        await pilot.press("e")
        assert Request("explain", chosen) in job.requests
        await frame(app)
        await pilot.press("full_stop", "full_stop", "full_stop")
        assert f"followed: {chosen} " in screen_text(app)
        await pilot.press("e", tab_key("tensors"), "enter")  # to the Range tab with it
        await pilot.press("e")
        assert job.requests[-2] == Request("explain", chosen)


async def test_what_cannot_be_told_is_said_with_its_reason() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        job.send = job.requests.append  # type: ignore[method-assign]
        app.explaining._panel.send = job.send
        await pilot.press("e")
        await frame(app)
        assert explaining.WAITING in screen_text(app)
        await pilot.press("full_stop", "comma")  # no harm while it waits
        why = "the step could not be taken apart: [red]ValueError[/red]: no"
        job.say(notice(why, knob="explain", refused=True))
        await frame(app)
        assert why in squeezed(screen_text(app))


async def test_a_training_that_ends_first_is_said() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        app.explaining._panel.send = lambda request: None
        await pilot.press("e")
        job.finish()
        await frame(app)
        assert explaining.ENDED_WITHOUT in squeezed(screen_text(app))
        await pilot.press("e")
        assert not app.explaining.open
        await pilot.press("e")
        assert messages(app)[-1] == explaining.ENDED_WITHOUT


async def test_restarting_leaves_explain_mode() -> None:
    job = trained()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("e")
        await frame(app)
        await pilot.press("r")
        await frame(app)
        assert not app.explaining.open
        assert "Waiting for the first optimizer step" in screen_text(app)


async def test_a_recording_shows_the_steps_that_were_taken_apart_in_it() -> None:
    records = (StepRecord(12, 0.0, 1.0), TAKEN, StepRecord(13, 1.0, 1.0), SKIPPED)
    app = recording(*records, RunEnd("finished", 14))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("e")
        assert "step 13 taken apart · stage 1 of 9" in screen_text(app)
        await pilot.press("comma")
        assert "step 12 taken apart · stage 9 of 9" in screen_text(app)
        await pilot.press(*["full_stop"] * 9)
        assert "step 13 taken apart · stage 9 of 9" in screen_text(app)
        await pilot.press("full_stop")
        assert messages(app) == [explaining.LAST]
        await pilot.press("escape")
        assert app.screen.query_one("#overview").display


async def test_a_recording_without_any_says_why_not() -> None:
    app = recording(StepRecord(0, 0.0, 1.0), RunEnd("finished", 1))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("e")
        assert messages(app) == [explaining.NONE_RECORDED]
        await pilot.press("comma")  # says nothing, does no harm
        assert not app.explaining.open


async def test_names_of_the_script_are_no_markup_and_small_windows_do_no_harm() -> None:
    name = "[bold]layer[/bold]\x1b[31m." + "deep." * 30 + "weight"
    operations = (Operation("linear", name, ("float32",), ("float32",), "float16"),) * 30
    followed = Followed(name, "float32", "float32", (2,), (0,), (1.0,), (1.0,), (1.0,), (1.0,))
    odd = StepAnatomy(7, operations=operations, tensors=1, followed=followed, stepped=True)
    app = recording(StepRecord(7, 0.0, 1.0), odd, RunEnd("finished", 8))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("e")
        assert "linear ([bold]layer" in screen_text(app)
        for size in ((36, 11), (20, 5), (1, 1), (200, 60), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.press("full_stop", "comma", "full_stop")
            screen_text(app)  # asserts that nothing is wider than the screen


def scrolled(app: DashboardApp) -> int:
    return app._main.explain.body.scroll_offset.y


async def test_a_long_table_scrolls_and_the_next_stage_begins_at_its_top() -> None:
    long = replace(TAKEN, operations=TAKEN.operations * 20)
    app = recording(StepRecord(12, 0.0, 1.0), long, RunEnd("finished", 13))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("e")
        await pilot.press("end")
        assert scrolled(app) > 0
        await pilot.press("full_stop")
        assert scrolled(app) == 0
        assert "Loss: one number" in screen_text(app)


def test_the_row_of_stages_keeps_the_open_one_in_sight() -> None:
    told = stages(SKIPPED)
    for width in (10, 30, 60, 78, 200):
        for at, stage in enumerate(told):
            row = strip(told, at, width)
            assert stage.name in row.plain
            assert row.cell_length <= max(width, len(stage.name) + 2)
    assert strip(told, 0, 100).plain == (
        "forward → loss → scale → ✗ gradients → unscale → ✗ check → clip → ✗ step → update"
    )


def test_lines_of_a_stage_are_no_wider_than_asked() -> None:
    for anatomy in (TAKEN, SKIPPED):
        for stage in stages(anatomy):
            for width in (78, 158):
                assert all(len(line) <= width for line, _ in drawn(stage, width))
