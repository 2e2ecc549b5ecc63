"""Whatever is pressed, the dashboard stands."""

from __future__ import annotations

import random

from ampwatch.tui.app import DashboardApp
from tests.tui.fakes import FakeJob, dashboard
from tests.tui.reading import frame

KEYS = (
    *"tTgG0dsizlmrxoO12345fep,.",
    *("space", "full_stop", "left_square_bracket", "right_square_bracket", "less_than_sign"),
    *("greater_than_sign", "question_mark", "ctrl+p", "escape", "enter", "tab", "shift+tab"),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "backspace", "a", "é"),
)
SIZES = ((80, 24), (160, 50), (40, 12), (20, 5), (1, 1), (300, 80), (60, 40), (100, 13))


async def test_two_thousand_random_keys_and_resizes_never_raise(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(DashboardApp, "action_picture", lambda self: None)  # no pile of files
    monkeypatch.setattr(DashboardApp, "action_leave", lambda self: None)  # the palette offers it
    chance = random.Random(20240817)
    job = FakeJob(per_poll=7)
    job.hello()
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        for count in range(2000):
            app.simulate_key(chance.choice(KEYS))
            if count % 40 == 39:
                job.output.feed(b"\x1b[31mline\x1b[0m\n %d%%\r" % count)
                await frame(app)
            if count % 100 == 99:
                await pilot.resize_terminal(*chance.choice(SIZES))
            if count % 300 == 299:
                (job.fail if chance.random() < 0.5 else job.finish)()
        await pilot.pause()
        assert app._exception is None
        assert app.is_running
    assert len(job.requests) > 100
