"""The four live plots, or one of them at full size."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Click
from textual.message import Message

from ampwatch.run import Run
from ampwatch.tui.look import Look
from ampwatch.tui.panels import PLOT_BY_NAME, PLOTS
from ampwatch.tui.plot_view import PlotView
from ampwatch.tui.waiting import WaitingCard


class Plot(PlotView, can_focus=True):
    """A plot that can be chosen with tab or the mouse."""

    class Enlarge(Message):
        """The plot was clicked twice."""

    def on_click(self, event: Click) -> None:
        if event.chain == 2:
            self.post_message(self.Enlarge())


class Overview(Container):
    """Widgets stay where they are; classes say which of them are seen."""

    def __init__(self) -> None:
        super().__init__(id="overview", classes="-waiting")
        self.enlarged: str | None = None

    def compose(self) -> ComposeResult:
        yield WaitingCard()
        for panel in PLOTS:
            plot = Plot(id=panel.name)
            plot.HELP = panel.help
            yield plot

    def sync(self, run: Run, look: Look) -> None:
        """Draw what the run has come to."""
        for panel in PLOTS:
            if self.enlarged in (None, panel.name):
                self.query_one(f"#{panel.name}", Plot).show(panel.spec(run, look))

    def wait(self, headline: str, more: str) -> None:
        """Say what is being waited for; without a headline, show the plots."""
        self.set_class(bool(headline), "-waiting")
        if headline:
            self.query_one(WaitingCard).show(headline, more)

    def chosen(self) -> str:
        """The plot that has the focus, or the first one."""
        focused = self.screen.focused
        name = focused.id if isinstance(focused, Plot) else None
        return name if name in PLOT_BY_NAME else PLOTS[0].name

    def enlarge(self, name: str | None) -> None:
        """One plot at full size, or all four again."""
        self.enlarged = name
        self.set_class(name is not None, "-one")
        for panel in PLOTS:
            self.query_one(f"#{panel.name}", Plot).set_class(panel.name == name, "-enlarged")
        if name is not None:
            self.query_one(f"#{name}", Plot).focus()

    def next_plot(self, step: int) -> None:
        """Go to the next plot, with the focus or, at full size, with the view."""
        names = [panel.name for panel in PLOTS]
        focused = self.screen.focused
        if self.enlarged is None and not isinstance(focused, Plot):
            name = names[0 if step > 0 else -1]
        else:
            name = names[(names.index(self.enlarged or self.chosen()) + step) % len(names)]
        if self.enlarged is not None:
            self.enlarge(name)
        else:
            self.query_one(f"#{name}", Plot).focus()
