"""Makes the pictures of this folder from seeded runs of the demos.

python screenshots/make.py            # a minute or two; needs no screen and no network
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from lessons import lessons
from textual.pilot import Pilot

from ampwatch.cli.demo_files import read_demo
from ampwatch.controls import SPEED, Controls
from ampwatch.launch import ScriptJob
from ampwatch.runner.settings import Settings
from ampwatch.session import Session
from ampwatch.tui.app import DashboardApp
from ampwatch.tui.picture import aligned

FOLDER = Path(__file__).parent
PATIENCE = 60.0
Story = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A demo under the dashboard, with hands on its keys."""

    def __init__(self, app: DashboardApp, pilot: Pilot[None], controls: Controls) -> None:
        self.app = app
        self._pilot = pilot
        self._controls = controls

    async def until(self, step: int) -> None:
        """Let the training go on up to a step."""
        waited = 0.0
        while self.app.session.run.steps < step:
            await self._pilot.pause(0.02)
            waited += 0.02
            if waited > PATIENCE:
                raise TimeoutError(f"step {step} did not come within {PATIENCE:g} seconds")

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)
        await self._pilot.pause(0.1)

    def pace(self, rate: float | None) -> None:
        self._controls.request(SPEED, rate)

    async def explained(self) -> None:
        """Wait for a step that is being taken apart."""
        while self.app.explaining.anatomy is None:
            await self._pilot.pause(0.02)

    async def picture(self, name: str) -> None:
        """Save what is on the screen, once it stands still."""
        await self._pilot.press("space")
        await self.still(name)
        await self._pilot.press("space")

    async def still(self, name: str) -> None:
        """Save what is on the screen of a run that is paused."""
        await self._pilot.pause(1.0)
        save(self.app, name)


def save(app: DashboardApp, name: str) -> None:
    """What is on the screen now, as a picture of this folder."""
    svg = app.export_screenshot(title="ampwatch")
    (FOLDER / f"{name}.svg").write_text(aligned(svg), encoding="utf-8")
    print(f"{name}.svg")  # noqa: T201


async def play(demo_name: str, story: Story, size: tuple[int, int], rate: float) -> None:
    demo = read_demo(demo_name)
    job = ScriptJob(str(demo.path), ["--seed", "0"], Settings(name=demo.name, rate=rate))
    controls = Controls(job.send)
    session = Session(job, controls)
    app = DashboardApp(session, controls, job, name=demo.name)
    job.start()
    try:
        async with app.run_test(size=size) as pilot:
            await story(Stage(app, pilot, controls))
    finally:
        job.kill()
        job.close()


async def overflow(stage: Stage) -> None:
    """Targets a thousandfold in the linear demo: what the README shows first."""
    await stage.until(300)
    for more in (1, 2, 3):
        await stage.press("t")
        await stage.until(300 + 3 * more)
    await stage.until(420)
    await stage.picture("overview")
    await stage.press("4")
    await stage.picture("events")
    await stage.press("3")
    await stage.picture("tensors")
    await stage.press("question_mark")
    await stage.picture("help")


async def explain(stage: Stage) -> None:
    """A skipped step taken apart, at the stage where inf comes up."""
    await stage.until(120)
    await stage.press("space", *["right_square_bracket"] * 7)
    await stage.press("e")
    await stage.explained()
    await stage.press("full_stop", "full_stop", "full_stop")
    await stage.still("explain")


async def presenter(stage: Stage) -> None:
    """What a class sees when the targets are enlarged a thousandfold."""
    await stage.press("p")
    await stage.until(250)
    for more in (1, 2, 3):
        await stage.press("t")
        await stage.until(250 + 3 * more)
    await stage.until(340)
    await stage.picture("presenter")


async def small(stage: Stage) -> None:
    """The same screen where it is smallest."""
    await stage.until(280)
    await stage.picture("overview-80x24")


async def clipping(stage: Stage) -> None:
    """The transformer: warm-up, gradient norms before and after the clip."""
    await stage.until(50)
    await stage.press("2")
    await stage.picture("range")
    await stage.press("1")
    await stage.until(120)
    await stage.picture("chargpt")


async def digits(stage: Stage) -> None:
    """Real accuracy climbing."""
    await stage.until(150)
    await stage.picture("digits")
    await stage.press("5")
    await stage.picture("output")


async def main() -> None:
    await play("linear", overflow, (120, 36), rate=60)
    await play("linear", small, (80, 24), rate=60)
    await play("linear", explain, (100, 30), rate=60)
    await play("linear", presenter, (100, 30), rate=60)
    await play("digits", digits, (120, 36), rate=60)
    await play("chargpt", clipping, (120, 36), rate=60)
    await lessons(save)


if __name__ == "__main__":
    asyncio.run(main())
