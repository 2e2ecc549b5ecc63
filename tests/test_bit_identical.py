"""Watching changes no bit of a training: plainly, without a screen and under the dashboard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ampwatch.controls import Controls
from ampwatch.job import ENDED
from ampwatch.launch import ScriptJob
from ampwatch.runner.settings import Settings
from ampwatch.session import Session
from ampwatch.tui.app import DashboardApp

DRIVER = str(Path(__file__).with_name("watched_demo.py"))
STEPS = {"linear": "200", "underflow": "200", "gan": "200", "digits": "60", "chargpt": "55"}
"""The last two compute for longer; each has grown its scale by then."""
PATIENCE_SECONDS = 240


def plain(demo: str, result: Path) -> None:
    command = [sys.executable, DRIVER, demo, STEPS[demo], str(result), "plain"]
    subprocess.run(command, check=True, capture_output=True)


def headless(demo: str, result: Path) -> None:
    command = [sys.executable, "-m", "ampwatch", "run", "--headless", "--log", f"{result}.jsonl"]
    subprocess.run(
        [*command, DRIVER, demo, STEPS[demo], str(result)], check=True, capture_output=True
    )


async def dashboard(demo: str, result: Path) -> None:
    job = ScriptJob(DRIVER, [demo, STEPS[demo], str(result)], Settings(name=demo))
    controls = Controls(job.send)
    app = DashboardApp(Session(job, controls), controls, job, name=demo)
    job.start()
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(PATIENCE_SECONDS * 10):
            if job.state in ENDED and app.session.run.end is not None:
                break  # the screen takes records in at its own pace, after the job's end too
            await pilot.pause(0.1)
        assert app.session.run.steps == int(STEPS[demo])
    assert job.state == "finished", job.error
    job.close()


def weights(result: Path) -> str:
    digest: str = json.loads(result.read_text())["weights"]
    assert len(digest) == 64
    return digest


@pytest.mark.parametrize("demo", STEPS)
async def test_a_demo_ends_with_the_same_weights_however_it_is_watched(
    demo: str, tmp_path: Path
) -> None:
    unwatched, without_screen, under_dashboard = (tmp_path / name for name in "abc")
    plain(demo, unwatched)
    headless(demo, without_screen)
    await dashboard(demo, under_dashboard)
    assert weights(without_screen) == weights(unwatched)
    assert weights(under_dashboard) == weights(unwatched)
