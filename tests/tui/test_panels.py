"""The tables and lists: tensors, events, output."""

from __future__ import annotations

import math

from ampwatch.record import StepRecord, TensorStats
from ampwatch.tui.panels.events import Events
from ampwatch.tui.panels.output import Output
from ampwatch.tui.panels.tensors import Tensors
from tests.tui.fakes import FakeJob, dashboard
from tests.tui.reading import frame, screen_text

STATS = TensorStats(
    step=12,
    name=("head.weight", "mid.weight", "dead.weight", "bad.weight", "nan.weight"),
    norm=(3.0, 20.0, 0.0, math.inf, math.nan),
    max=(1.0, 2.0, 0.0, math.inf, math.nan),
    zeros=(0, 5, 10, 1, 0),
    nonfinite=(0, 0, 0, 4, 9),
    size=(10, 10, 10, 10, 10),
)


def names(tensors: Tensors) -> list[str]:
    return [row.name for row in tensors.table.shown]


async def test_trouble_comes_first_and_keys_and_heads_choose_another_order() -> None:
    job = FakeJob()
    job.hello()
    job.train(1)
    job.poll()
    job.say(StepRecord(12, 1.0, 1.0))
    job.say(STATS)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await frame(app)
        tensors = app.screen.query_one(Tensors)
        trouble = ["nan.weight", "bad.weight", "dead.weight", "mid.weight", "head.weight"]
        assert names(tensors) == trouble
        await pilot.press("o")  # parameter: backward order
        assert names(tensors) == list(STATS.name)
        await pilot.press("o")  # norm
        assert set(names(tensors)[:2]) == {"nan.weight", "bad.weight"}
        assert names(tensors)[2:] == ["mid.weight", "head.weight", "dead.weight"]
        await pilot.press("O")
        assert names(tensors)[:3] == ["dead.weight", "head.weight", "mid.weight"]
        text = screen_text(app)
        assert "step 12 · 5 parameters · norm, smallest first" in text
        assert "NaN" in text
        assert "100 %" in text  # every element of dead.weight is 0


async def test_the_table_follows_the_latest_detail_step_where_it_was_scrolled_to() -> None:
    many = 10_000
    job = FakeJob(names=tuple(f"layer.{index}" for index in range(many)))
    job.hello()
    job.train(1)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await frame(app)
        table = app.screen.query_one(Tensors).table
        assert table.virtual_size.height == many
        assert table.scroll_offset.y == 0
        table.scroll_to(y=5000, animate=False, immediate=True)
        job.train(25)
        await frame(app)
        assert "step 20 · 10,000 parameters" in screen_text(app)
        assert table.scroll_offset.y == 5000


async def test_the_head_of_a_column_orders_by_it() -> None:
    job = FakeJob()
    job.hello()
    job.train(1)
    job.say(STATS)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await frame(app)
        tensors = app.screen.query_one(Tensors)
        row = screen_text(app).splitlines()[4]
        await pilot.click("#tensors-head", offset=(row.index("zeros"), 0))
        await pilot.pause()
        assert names(tensors)[:2] == ["dead.weight", "mid.weight"]
        await pilot.click("#tensors-head", offset=(2, 0))
        await pilot.pause()
        assert names(tensors) == list(STATS.name)


async def test_events_are_listed_with_their_steps() -> None:
    job = FakeJob()
    job.hello()
    job.train(200)
    app = dashboard(job)
    async with app.run_test(size=(100, 40)) as pilot:
        await frame(app)
        await pilot.press("4")
        await pilot.pause()
        text = screen_text(app)
        for event in app.session.run.events.items:
            assert event.text.split(";")[0][:40] in text
        assert app.screen.query_one(Events).virtual_size.height >= len(app.session.run.events.items)


async def test_output_follows_its_end_until_it_is_scrolled_up() -> None:
    job = FakeJob()
    job.output.feed("".join(f"line {n}\n" for n in range(200)).encode())
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("5")
        await frame(app)
        assert "line 199" in screen_text(app)
        job.output.feed(b"line 200\n 10%\r")
        await frame(app)
        assert "line 200" in screen_text(app)
        assert "10%" in screen_text(app)
        job.output.feed(b" 20%\r")
        await frame(app)
        assert "20%" in screen_text(app)
        assert "10%" not in screen_text(app)
        await pilot.press("home")
        await pilot.pause()
        assert "line 0 " in screen_text(app)
        job.output.feed(b"more\n" * 50)
        await frame(app)
        assert "line 0 " in screen_text(app)
        await pilot.press("end")
        job.output.feed(b"the last line\n")
        await frame(app)
        assert "the last line" in screen_text(app)


async def test_what_is_read_stays_in_place_while_old_lines_go() -> None:
    job = FakeJob()
    job.output.feed("".join(f"line {n}\n" for n in range(5000)).encode())
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("5")
        await frame(app)
        output = app.screen.query_one(Output)
        output.scroll_to(y=2500, animate=False, immediate=True)
        await pilot.pause()
        assert "line 2500 " in screen_text(app)
        job.output.feed(b"new\n" * 300)
        await frame(app)
        assert len(job.output.lines) == 5000
        assert "line 2500 " in screen_text(app)


async def test_long_and_wide_lines_are_folded_whole() -> None:
    job = FakeJob()
    wide = "漢字" * 60
    job.output.feed(("x" * 200 + "y\n" + wide + "\n").encode())
    app = dashboard(job)
    async with app.run_test(size=(60, 24)) as pilot:
        await pilot.press("5")
        await frame(app)
        text = screen_text(app)
        assert text.count("x") >= 200
        assert "y" in text
        assert text.count("漢") == 60
        await pilot.resize_terminal(100, 24)
        await frame(app)
        assert "".join(screen_text(app).splitlines()[3:-3]).count("漢") == 60


async def test_output_is_forgotten_when_the_script_starts_again() -> None:
    job = FakeJob()
    job.output.feed(b"first run\n" * 5)
    app = dashboard(job)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("5")
        await frame(app)
        await pilot.press("r")
        job.output.feed(b"second run\n")
        await frame(app)
        assert "first run" not in screen_text(app)
        assert "second run" in screen_text(app)
