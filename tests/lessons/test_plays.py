"""Each lesson in the dashboard, from its first part to its last, by the keys a learner presses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.keys import _character_to_key
from textual.pilot import Pilot

from ampwatch.controls import Controls
from ampwatch.lessons import LESSONS, Lesson
from ampwatch.lessons.learner import Learner
from ampwatch.lessons.page import page_of
from ampwatch.lessons.player import Player
from ampwatch.lessons.progress import Progress
from ampwatch.session import Session
from ampwatch.tui.lesson_app import LessonApp
from ampwatch.tui.lesson_menu import LessonMenu, first_unfinished
from ampwatch.tui.lesson_page import table_content
from tests.lessons.tapes import LESSON, TapeJob, tape
from tests.tui.reading import frame, messages, screen_text

NAMES = tuple(LESSON)
WITH_TABLES = ("overflow", "static", "eight_bits")
SMALL, LARGE, PROJECTOR = (80, 24), (160, 50), (100, 30)
NAMED_KEYS = {"space": "space"}
MOST_FRAMES = 200


class Pressed(Player):
    """Lets the tape go on at the very moment at which a key of the lesson is pressed."""

    def __init__(self, lesson: Lesson, controls: Controls, job: TapeJob) -> None:
        super().__init__(lesson, controls)
        self.job = job

    def key(self, key: str) -> str | None:
        self.job.done(f"key {key}")
        return super().key(key)


def lesson_app(name: str, folder: Path, progress: Progress | None = None) -> tuple[LessonApp, Any]:
    """A lesson on the dashboard, with a tape in place of a training."""
    job = TapeJob(tape(name, folder))
    controls = Controls(job.send)
    session = Session(job, controls)
    player = Pressed(LESSON[name], controls, job)
    kept = progress if progress is not None else Progress()
    return LessonApp(session, controls, job, player, kept, "lesson 4"), job


def words(text: str) -> str:
    return " ".join(re.sub(r"[┃━│]", " ", text).split())


def panel_text(app: LessonApp) -> str:
    """What stands in the lesson's panel."""
    region = app.screen.query_one("#lesson").region
    rows = app.screen._compositor.render_strips()[region.y : region.bottom]
    return "\n".join(row.crop(region.x, region.right).text for row in rows)


def check_page(app: LessonApp) -> None:
    """Every sentence is on the screen, and so are the plots and the table it speaks of."""
    page = page_of(app.player)
    shown = words(panel_text(app))
    for part in (page.verdict, page.text, page.trouble, *(w for _, w in page.choices)):
        assert words(part) in shown
    for key in page.keys:
        assert key in shown
    scroll = app.screen.query_one("#lesson-scroll")
    assert scroll.virtual_size.height <= scroll.size.height
    screen = screen_text(app)
    if page.table is not None:
        for line in table_content(page.table).plain.split("\n"):
            assert line.rstrip() in screen  # in one piece: no line is wrapped
    elif page.tab == "overview":
        for name in page.look:
            plot = app._main.overview.plots[name]
            assert plot.display
            assert plot.has_class("-pointed")
            assert plot.size.height >= 6
            assert "too small" not in screen
    elif page.tab == "range" and app.session.run.tensors is not None:
        assert "too small to draw" not in screen


async def play(app: LessonApp, job: TapeJob, size: tuple[int, int]) -> int:
    """Play a lesson to its end; how many pages were read."""
    learner, read = Learner(), set()
    async with app.run_test(size=size) as pilot:
        for _ in range(MOST_FRAMES):
            await frame(app)
            if app.player.finished:
                break
            keys = learner.keys(app.player)
            if keys:
                await pilot.pause()
                check_page(app)
                read.add(app.player.index)
            for key in keys:
                await pilot.press(NAMED_KEYS.get(key) or _character_to_key(key))
        assert app.player.done, (page_of(app.player), job.place)
        await pilot.pause()
        assert "goes on with lesson 4" in screen_text(app)
        await pilot.press("n")
        await pilot.pause()
        assert app.wants_next
    return len(read)


@pytest.mark.parametrize(
    ("name", "size"),
    [*((name, SMALL) for name in NAMES), *((name, LARGE) for name in WITH_TABLES)],
    ids=[*(f"{name}-80x24" for name in NAMES), *(f"{name}-160x50" for name in WITH_TABLES)],
)
async def test_a_lesson_is_played_to_its_end_by_its_keys(
    name: str, size: tuple[int, int], tapes: Path
) -> None:
    progress = Progress()
    app, job = lesson_app(name, tapes, progress)
    waits = sum(not hasattr(part, "keys") and hasattr(part, "until") for part in LESSON[name].parts)
    assert await play(app, job, size) >= len(LESSON[name].parts) - waits
    assert progress.of(name).done


@pytest.mark.parametrize("presenting", [False, True], ids=["plain", "presenter"])
async def test_lesson_3_can_be_read_on_a_projector(presenting: bool, tapes: Path) -> None:
    app, job = lesson_app("overflow", tapes)
    if presenting:
        app.look.presenting = False

        async def begin() -> None:
            await app.run_action("presenter")

        app.call_later(begin)
    assert await play(app, job, PROJECTOR) >= 10


async def test_every_key_of_the_dashboard_still_works_beside_a_lesson(tapes: Path) -> None:
    app, job = lesson_app("growth", tapes)
    async with app.run_test(size=SMALL) as pilot:
        await frame(app)
        await pilot.press("i", "t", "d")
        turned = [each.knob for each in job.sent if each.knob != "speed"]  # the lesson's own
        assert turned == ["inject", "target_gain", "dtype"]
        await pilot.press("2")
        assert app._main.tab == "range"
        await pilot.press("escape")
        assert app._main.tab == "overview"
        await pilot.press("question_mark")
        assert "The lesson" in screen_text(app)
        await pilot.press("escape")
        job.pieces = job.pieces[: job.place]  # what the second part waits for does not come
        await pilot.press("n")
        assert app.player.index == 1


async def test_a_key_that_can_do_nothing_now_says_why(tapes: Path) -> None:
    app, job = lesson_app("growth", tapes)
    async with app.run_test(size=SMALL) as pilot:
        await frame(app)
        job.pieces = job.pieces[: job.place]  # what the second part waits for does not come
        await pilot.press("n", "n")
        assert any("by itself" in each for each in messages(app))


async def test_letters_typed_into_the_palette_answer_no_question(tapes: Path) -> None:
    app, _job = lesson_app("overflow", tapes)
    async with app.run_test(size=SMALL) as pilot:
        for _ in range(20):
            await frame(app)
            if app.player.state == "asking":
                break
        assert app.player.state == "asking"
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press("a", "b")
        assert app.player.state == "asking"
        await pilot.press("escape")
        await pilot.press("b")
        assert app.player.choice == "b"


async def read_on(app: LessonApp, pilot: Pilot[None], until: Callable[[], bool]) -> None:
    """Play a lesson until it is where it is wanted."""
    learner = Learner()
    for _ in range(MOST_FRAMES):
        await frame(app)
        if until():
            return
        for key in learner.keys(app.player):
            await pilot.press(NAMED_KEYS.get(key) or _character_to_key(key))
    raise AssertionError(page_of(app.player))


async def test_an_earlier_part_is_read_again_and_nothing_is_undone(tapes: Path) -> None:
    progress = Progress()
    app, job = lesson_app("growth", tapes, progress)
    async with app.run_test(size=SMALL) as pilot:
        await read_on(app, pilot, lambda: app.player.state == "asking")
        place, sent = app.player.index, len(job.sent)
        first = words(LESSON["growth"].parts[1].text)  # type: ignore[arg-type]
        assert "part 4 of 9 · ⌫ back" in panel_text(app)
        await pilot.press("backspace", "backspace")
        await frame(app)
        shown = words(panel_text(app))
        assert first in shown
        assert "part 2 of 9 again" in shown
        await pilot.press("b")  # the question is not on the screen: no answer to it
        assert (app.player.index, app.player.choice, len(job.sent)) == (place, None, sent)
        await pilot.press("n", "n")
        await frame(app)
        assert "what ends the climb?" in words(panel_text(app))
        await pilot.press("b")
        assert app.player.choice == "b"
        assert progress.of("growth").part >= 4
        await pilot.press("question_mark")
        await pilot.pause()
        assert "⌫  Read the part before again" in screen_text(app)


async def test_the_first_part_has_none_before_it(tapes: Path) -> None:
    app, _job = lesson_app("growth", tapes)
    async with app.run_test(size=SMALL) as pilot:
        await frame(app)
        assert "⌫" not in panel_text(app)
        await pilot.press("backspace")
        assert any("first part" in each for each in messages(app))


async def test_a_table_gives_way_to_another_tab_and_to_a_step_taken_apart(tapes: Path) -> None:
    app, _job = lesson_app("overflow", tapes)
    async with app.run_test(size=SMALL) as pilot:
        await read_on(app, pilot, lambda: app.player.table is not None)
        await pilot.pause()
        table, panels = app.screen.query_one("#lesson-table"), app.screen.query_one("#panels")
        assert (table.display, panels.display) == (True, False)
        await pilot.press("2")
        await frame(app)
        assert (table.display, panels.display) == (False, True)
        await pilot.press("1")
        await frame(app)
        assert (table.display, panels.display) == (True, False)
        room = panels.size.height
        await pilot.press("e")
        await frame(app)
        assert (table.display, panels.display) == (False, True)
        assert panels.size.height >= room + 15
        assert "goes on" in panel_text(app)


async def test_what_is_said_in_passing_does_not_cover_the_lesson(tapes: Path) -> None:
    app, _job = lesson_app("growth", tapes)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await frame(app)
        await pilot.press("backspace")
        await pilot.pause()
        toast, panel = app.screen.query_one("Toast"), app.screen.query_one("#lesson")
        assert toast.region.height > 0
        assert not toast.region.overlaps(panel.region)


async def test_in_a_small_window_the_key_that_is_asked_for_is_seen_and_the_text_scrolls(
    tapes: Path,
) -> None:
    app, _job = lesson_app("growth", tapes)
    async with app.run_test(size=(40, 14)) as pilot:
        await frame(app)
        await pilot.pause()
        assert " n  goes on" in panel_text(app)
        assert "GradScaler has two rules" in words(panel_text(app))
        assert "counts down" not in words(panel_text(app))
        await pilot.press("pagedown", "pagedown", "pagedown", "pagedown")
        await pilot.pause()
        assert "counts down" in words(panel_text(app))
        await pilot.press("pageup", "pageup", "pageup", "pageup")
        await pilot.pause()
        assert "GradScaler has two rules" in words(panel_text(app))


async def test_a_lesson_moves_beside_the_plots_when_there_is_room(tapes: Path) -> None:
    app, _job = lesson_app("growth", tapes)
    async with app.run_test(size=SMALL) as pilot:
        await frame(app)
        panel = app.screen.query_one("#lesson")
        assert panel.region.x == 0
        await pilot.resize_terminal(*LARGE)
        await pilot.pause()
        assert panel.region.x > 100
        await pilot.resize_terminal(20, 8)
        await pilot.pause()
        await pilot.resize_terminal(*SMALL)
        await pilot.pause()
        assert panel.region.x == 0
        check_page(app)


# The menu.


async def test_the_menu_begins_at_the_first_lesson_that_is_not_done() -> None:
    progress = Progress()
    progress.note("autocast", 9, 9, True)
    progress.note("underflow", 4, 10, False)
    app = LessonMenu(LESSONS, progress)
    async with app.run_test(size=SMALL) as pilot:
        await pilot.pause()
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        for lesson in LESSONS:
            assert lesson.title in text
            assert lesson.goal in text
        assert "1 of 9 done" in text
        assert "part 4/10" in text
        await pilot.press("enter")
    assert app.return_value is LESSON["underflow"]


@pytest.mark.parametrize(("key", "chosen"), [("3", "overflow"), ("q", None), ("down", None)])
async def test_the_menu_by_keys(key: str, chosen: str | None) -> None:
    app = LessonMenu(LESSONS, Progress())
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press(key)
        await pilot.pause()
        if key == "down":
            await pilot.press("enter")
            await pilot.pause()
            chosen = "underflow"
    assert app.return_value is (LESSON[chosen] if chosen else None)


def test_with_all_lessons_done_the_menu_begins_at_the_first() -> None:
    progress = Progress()
    for lesson in LESSONS:
        progress.note(lesson.id, 1, 1, True)
    assert first_unfinished(LESSONS, progress) == 0
