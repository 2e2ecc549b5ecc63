"""Leaving is polite, then firm, and never takes longer than two seconds."""

from __future__ import annotations

import pytest

from ampwatch.record import StepRecord
from ampwatch.tui.quitting import PATIENCE, Quitting
from tests.tui.fakes import FakeJob, dashboard, recording
from tests.tui.reading import frame, screen_text


def running(deaf: bool = False) -> FakeJob:
    job = FakeJob()
    job.hello()
    job.train(3)
    job.deaf = deaf
    return job


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_a_script_that_stops_lets_the_screen_go_at_once(key: str) -> None:
    job = running()
    app = dashboard(job)
    async with app.run_test() as pilot:
        await frame(app)
        await pilot.press(key)
        await pilot.pause()
        assert job.calls == ["stop"]
        assert not app.is_running


async def test_a_script_that_does_not_stop_is_named_and_a_second_request_ends_it() -> None:
    job = running(deaf=True)
    app = dashboard(job)
    async with app.run_test(size=(100, 30)) as pilot:
        await frame(app)
        await pilot.press("q")
        await pilot.pause()
        assert app.is_running
        assert "STOPPING" in screen_text(app)
        assert "The script is in the middle of a step." in screen_text(app)
        await pilot.press("q")
        await pilot.pause(0.2)
        assert job.calls == ["stop", "kill"]
        assert not app.is_running


def test_the_screen_is_given_back_within_two_seconds_whatever_the_script_does() -> None:
    job = running(deaf=True)
    quitting = Quitting(job)
    assert not quitting.due(100.0)
    quitting.ask(100.0)
    assert not quitting.due(100.0 + PATIENCE - 0.01)
    assert quitting.due(100.0 + PATIENCE)
    assert PATIENCE < 2.0


async def test_quitting_a_finished_run_or_a_recording_is_immediate() -> None:
    job = running()
    job.finish()
    for app in (dashboard(job), recording(StepRecord(0, 0.0, 1.0))):
        async with app.run_test() as pilot:
            await pilot.press("q")
            await pilot.pause()
            assert not app.is_running
    assert job.calls == []


async def test_ctrl_c_leaves_from_the_help_too() -> None:
    app = dashboard(running())
    async with app.run_test() as pilot:
        await pilot.press("question_mark")
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert not app.is_running
