"""The widget shows the latest plot, sends only the rows that moved, and survives anything."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.widgets import Static

from ampwatch.history import History
from ampwatch.plot.draw import draw
from ampwatch.plot.spec import STYLES, Curve, Mark, PlotSpec
from ampwatch.tui import plot_view
from ampwatch.tui.plot_view import PlotView

pytestmark = pytest.mark.filterwarnings("error")


def spec(values: Iterable[float], **more: Any) -> PlotSpec:
    history = History()
    for step, value in enumerate(values):
        history.add(step, value)
    last = max((history.last_step or 0), 0)
    given = {"name": "loss", "title": "loss", "value": "1", "first": 0, "last": last, **more}
    return PlotSpec(curves=(Curve("loss", history),), **given)


def lines(view: PlotView) -> list[str]:
    return [view.render_line(y).text for y in range(view.size.height)]


class Counting(PlotView):
    """Counts what it is asked to send again."""

    def __init__(self) -> None:
        super().__init__(id="plot")
        self.sent: list[tuple[Region, ...]] = []

    def refresh(self, *regions: Region, **more: bool) -> Counting:
        self.sent.append(regions)
        super().refresh(*regions, **more)
        return self


class PlotApp(App[None]):
    AUTO_FOCUS = None
    CSS = "#other { height: 3; }"

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static("other", id="other")
        yield Counting()

    def on_plot_view_chosen(self, message: PlotView.Chosen) -> None:
        self.chosen.append(message.name)

    @property
    def plot(self) -> Counting:
        return self.query_one(Counting)


async def test_what_is_drawn_is_what_is_shown_in_every_size() -> None:
    shown = spec([1.0, 2.0, math.nan, 4.0])
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        for size in ((80, 24), (300, 80), (20, 8), (5, 5), (1, 4), (1, 1), (80, 24)):
            await pilot.resize_terminal(*size)
            app.plot.show(shown)
            await pilot.pause()
            width, height = app.plot.size
            assert "\n".join(lines(app.plot)) == draw(shown, width, height).text
            for y in range(height):
                assert app.plot.render_line(y).cell_length == width


async def test_nothing_is_sent_when_nothing_changed() -> None:
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        shown = spec([1.0, 2.0])
        app.plot.show(shown)
        await pilot.pause()
        app.plot.sent.clear()
        app.plot.show(shown)
        app.plot.show(PlotSpec(**{name: getattr(shown, name) for name in shown.__slots__}))
        assert app.plot.sent == []


async def test_only_rows_that_changed_are_sent() -> None:
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        values = [1.0, 2.0, 3.0]
        app.plot.show(spec(values, value="3"))
        await pilot.pause()
        app.plot.sent.clear()
        app.plot.show(spec(values, value="4"))
        assert app.plot.sent == [(Region(0, 0, 80, 1),)]
        app.plot.sent.clear()
        before = lines(app.plot)
        app.plot.show(spec([*values, 1.0], value="4"))
        (regions,) = app.plot.sent
        after = lines(app.plot)
        assert {region.y for region in regions} == {
            y for y, line in enumerate(after) if line != before[y]
        }
        assert 0 not in {region.y for region in regions}


async def test_a_series_that_grew_is_drawn_although_the_spec_is_the_same() -> None:
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        shown = spec([1.0, 2.0], last=20)
        app.plot.show(shown)
        await pilot.pause()
        before = lines(app.plot)
        shown.curves[0].history.add(9, 2.0)
        app.plot.show(shown)
        await pilot.pause()
        assert lines(app.plot) != before


async def test_a_hidden_plot_is_not_drawn_until_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def counting(spec: PlotSpec, *arguments: Any, **more: Any) -> Any:
        drawn.append(spec.value)
        return draw(spec, *arguments, **more)

    monkeypatch.setattr(plot_view, "draw", counting)
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.plot.display = False
        await pilot.pause()
        for number in range(5):
            app.plot.show(spec([1.0, 2.0], value=f"hidden {number}"))
        assert drawn == []
        app.plot.display = True
        await pilot.pause()
        assert drawn == ["hidden 4"]
        assert "hidden 4" in lines(app.plot)[0]


async def test_a_click_chooses_the_plot() -> None:
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.click(Counting)
        assert app.chosen == []  # nothing shown yet, nothing to enlarge
        app.plot.show(spec([1.0], name="grad_norm"))
        await pilot.click(Counting)
        assert app.chosen == ["grad_norm"]
        assert app.plot.has_focus


async def test_colours_follow_the_theme_and_no_key_lacks_one() -> None:
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.plot.show(spec([1.0, 2.0]))
        await pilot.pause()
        seen = set()
        for theme in app.available_themes:
            app.theme = theme
            await pilot.pause()
            strip = app.plot.render_line(0)
            title = next(segment for segment in strip if segment.text == "loss")
            assert title.style is not None
            seen.add(str(title.style))
            assert all(app.plot.get_component_rich_style(f"plot--{style}") for style in STYLES)
        assert len(seen) > 10


async def test_focus_changes_the_title() -> None:
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.plot.show(spec([1.0, 2.0]))
        await pilot.pause()
        blurred = next(iter(app.plot.render_line(0))).style
        app.plot.focus()
        await pilot.pause()
        assert next(iter(app.plot.render_line(0))).style != blurred


async def test_a_metric_name_is_never_markup() -> None:
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.plot.show(spec([1.0], title="[red]a[/] [@click=app.quit()]b[/]", value="[/]"))
        await pilot.pause()
        assert lines(app.plot)[0].startswith("[red]a[/] [@click=app.quit()]b[/]  [/] ")


async def test_an_error_in_drawing_is_shown_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **more: Any) -> Any:
        raise RuntimeError("no [b]dice[/b]")

    app = PlotApp()
    async with app.run_test(size=(60, 12)) as pilot:
        monkeypatch.setattr(plot_view, "draw", broken)
        app.plot.show(spec([1.0]))
        await pilot.pause()
        assert lines(app.plot)[0].rstrip() == "cannot draw loss: no [b]dice[/b]"
        monkeypatch.undo()
        app.plot.show(spec([1.0, 2.0]))
        await pilot.pause()
        assert "┤" in "".join(lines(app.plot))


async def test_any_plots_in_any_sizes_give_whole_rows() -> None:
    numbers = random.Random(7)
    nasty = [math.nan, math.inf, -math.inf, 0.0, 1e308, -1e308, 5e-324, 1.0]
    app = PlotApp()
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(60):
            await pilot.resize_terminal(numbers.randint(1, 120), numbers.randint(1, 40))
            for _ in range(12):
                count = numbers.choice([0, 1, 2, 50, 300])
                values = [
                    numbers.choice(nasty) if numbers.random() < 0.3 else numbers.gauss(0, 3)
                    for _ in range(count)
                ]
                marks = tuple(
                    Mark(numbers.randint(-5, 400), numbers.choice(("skip", "knob")))
                    for _ in range(numbers.choice([0, 20]))
                )
                app.plot.show(
                    spec(
                        values,
                        axis=numbers.choice(("linear", "log2", "log10")),
                        title=numbers.choice(("loss", "漢字" * 20, "\x1b[2J")),
                        marks=marks,
                        floor_zero=numbers.random() < 0.2,
                    )
                )
                width, height = app.plot.size
                for y in range(height + 2):
                    strip = app.plot.render_line(y)
                    assert strip.cell_length == width
                    assert sum(cell_len(segment.text) for segment in strip) == width
                    assert not strip.text.startswith("cannot draw")
        await pilot.pause()
