"""Text of others is shown, never obeyed."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from ampwatch.record import StepRecord, TensorStats
from ampwatch.tui.foreign import coloured, plain, shorten, uncoloured
from ampwatch.tui.main_screen import MainScreen
from tests.tui.fakes import FakeJob, dashboard, notice
from tests.tui.reading import frame, screen_text

HOSTILE = (
    "[red]x[/red]",
    "[@click=app.quit]press[/]",
    "$error on $error",
    "\x1b[2J\x1b[H",
    "\x9b2J",
    "\x1b]8;;http://example.org\x07link\x1b]8;;\x07",
    "a\rb",
    "a\tb",
    "nul\x00bell\x07",
    "wide 漢字 🙂",
    "zero\u200bwidth\u202eoverride\ufeff",
    "e\u0301",
    "\ud800 lone surrogate",
    "[",
    "\\[",
    "[/]",
    "",
)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_plain_text_holds_no_control_characters_and_its_width_is_known(text: str) -> None:
    shown = plain(text)
    assert all(ord(character) >= 0x20 for character in shown)
    assert not set(shown) & set("\x7f\x9b\u200b\u202e\ufeff\ud800")
    assert shown.encode("utf-8").decode() == shown
    assert plain(shown) == shown
    assert cell_len(shown) == sum(map(cell_len, shown))


def test_markup_is_shown_as_it_was_written() -> None:
    assert plain("[red]x[/red]") == "[red]x[/red]"
    assert coloured("[red]x[/red]").plain == "[red]x[/red]"


def test_colours_survive_and_nothing_else_that_a_line_asks_for() -> None:
    line = coloured(
        "\x1b[2J\x1b[31mred\x1b[0m plain \x1b]8;;http://example.org\x07link\x1b]8;;\x07"
    )
    assert line.plain == "red plain link"
    assert [
        (span.start, span.end, span.style.color.number) for span in line.spans if span.style
    ] == [(0, 3, 1)]
    assert uncoloured("\x1b[1;38;5;9mbold\x1b[0m\tx") == "bold    x"


def test_a_name_is_cut_in_its_middle() -> None:
    assert shorten("encoder.layers.11.attention.weight", 17) == "encoder.…n.weight"
    assert shorten("short", 17) == "short"
    assert len(shorten("x" * 50, 2)) == 2


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
async def test_hostile_text_everywhere_changes_nothing_but_the_text(text: str) -> None:
    job = FakeJob(names=(text, "b", text + "2", "d"))
    job.hello(name=text or "run", device=text or None)
    job.metrics = {text or "m": 1.0}
    job.train(30)
    job.say(
        StepRecord(
            30, 2.0, 1.0, scale=2.0, skipped=True, nonfinite_tensors=1, origin=text, dtype=text
        )
    )
    job.say(TensorStats(30, (text,), (1.0,), (1.0,), (0,), (0,)))
    job.say(notice(text or "x", refused=True))
    job.output.feed(f"{text}\n{text}".encode("utf-8", "replace"))
    app = dashboard(job)
    async with app.run_test(size=(100, 30)) as pilot:
        for key in "123451":
            await pilot.press(key)
            await frame(app)
            shown = screen_text(app)
            assert all(ord(character) >= 0x20 or character == "\n" for character in shown)
        assert isinstance(app.screen, MainScreen)
        assert app.is_running
        if text.startswith("[red]"):
            assert "[red]x[/red]" in screen_text(app)
