"""The dashboard on a log: long ones, growing ones, such as have no end."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_logs import INFO, healthy, step, write_log

from ampwatch.controls import Controls
from ampwatch.log import FollowedLog, WholeLog
from ampwatch.log.whole import POLL_RECORDS
from ampwatch.record import RunEnd
from ampwatch.session import Session, Source
from ampwatch.tui import pace
from ampwatch.tui.app import DashboardApp
from ampwatch.tui.pace import catch_up
from tests.tui.reading import frame, messages, screen_text


def viewer(source: Source, follow: bool = False) -> DashboardApp:
    panel = Controls()
    return DashboardApp(Session(source, panel), panel, None, name="run.jsonl", follow=follow)


async def test_a_long_log_comes_frame_by_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "CATCH_UP_SECONDS", 0.0)
    steps = 5 * POLL_RECORDS
    app = viewer(WholeLog(write_log(tmp_path / "run.jsonl", healthy(steps))))
    monkeypatch.setattr(app, "_frame", lambda: None)  # frames come when the test wants them
    async with app.run_test(size=(80, 24)):
        await frame(app)
        assert "READING" in screen_text(app)
        assert 0 < app.session.run.steps <= POLL_RECORDS
        for _ in range(6):
            await frame(app)
        assert app.session.run.steps == steps
        assert "FINISHED" in screen_text(app)


def test_a_frame_takes_in_as_many_pieces_as_it_has_time_for(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", healthy(3 * POLL_RECORDS))
    session = Session(WholeLog(path))
    patient = pace.CATCH_UP_SECONDS
    pace.CATCH_UP_SECONDS = 60.0
    try:
        caught = catch_up(session)
    finally:
        pace.CATCH_UP_SECONDS = patient
    assert session.run.steps == 3 * POLL_RECORDS
    assert (caught.came, caught.behind) == (True, False)


async def test_a_log_without_an_end_says_so(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", [INFO, step(0, 8.0)])
    app = viewer(WholeLog(path))
    async with app.run_test(size=(80, 24)):
        await frame(app)
        await frame(app)
        assert "NO END" in screen_text(app)


async def test_a_growing_log_is_followed_to_its_end(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", [INFO])
    app = viewer(FollowedLog(path), follow=True)
    async with app.run_test(size=(80, 24)):
        await frame(app)
        text = screen_text(app)
        assert "FOLLOWING" in text
        assert "No step in this recording yet." in text
        write_log(path, [step(0, 8.0), step(1, 8.0), RunEnd("finished", 2)])
        await frame(app)
        text = screen_text(app)
        assert "FINISHED" in text
        assert "step 2" in text


async def test_a_log_without_steps_is_not_waited_for(tmp_path: Path) -> None:
    app = viewer(WholeLog(write_log(tmp_path / "run.jsonl", [INFO])))
    async with app.run_test(size=(80, 24)):
        await frame(app)
        await frame(app)
        assert "This recording holds no optimizer step." in screen_text(app)


async def test_knobs_answer_that_it_is_a_recording(tmp_path: Path) -> None:
    app = viewer(WholeLog(write_log(tmp_path / "run.jsonl", healthy())))
    async with app.run_test(size=(80, 24)) as pilot:
        await frame(app)
        await pilot.press("t")
        assert "This is a recording: there is no training to change." in messages(app)
        await pilot.press("r")
        assert "This is a recording: there is no script to start again." in messages(app)


async def test_lines_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", healthy())
    with path.open("a") as log:
        log.write("nonsense\n")
    app = viewer(WholeLog(path))
    async with app.run_test(size=(80, 24)):
        await frame(app)
        await frame(app)
        assert any("could not be read; the first is line 33" in text for text in messages(app))
