"""The four live plots, or one of them at full size."""

from __future__ import annotations

from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Container

from ampwatch.plot.spec import Mark
from ampwatch.run import Run
from ampwatch.tui.look import Look
from ampwatch.tui.panels import PLOT_BY_NAME, PLOTS
from ampwatch.tui.plot_view import PlotView
from ampwatch.tui.waiting import WaitingCard


class Overview(Container):
    """Widgets stay where they are; classes say which of them are seen."""

    def __init__(self) -> None:
        super().__init__(id="overview", classes="-waiting")
        self.enlarged: str | None = None
        self._waits = True
        self.card = WaitingCard()
        self.plots = {panel.name: PlotView(id=panel.name) for panel in PLOTS}

    def compose(self) -> ComposeResult:
        yield self.card
        yield from self.plots.values()

    def sync(self, run: Run, look: Look) -> None:
        """Draw what the run has come to."""
        for panel in PLOTS:
            if self.enlarged in (None, panel.name):
                spec = panel.spec(run, look)
                if look.presenting:
                    spec = replace(spec, thick=True)
                if look.pointer is not None:
                    mark = Mark(look.pointer, "knob", f"step {look.pointer:,}")
                    spec = replace(spec, marks=(*spec.marks, mark))
                self.plots[panel.name].show(spec)

    def wait(self, headline: str, more: str) -> None:
        """Say what is being waited for; without a headline, show the plots."""
        self._waits = bool(headline)
        if headline:
            self.card.show(headline, more)
        self._arrange()

    def _arrange(self) -> None:
        self.set_class(self._waits, "-waiting")
        self.set_class(not self._waits and self.enlarged is None, "-four")
        self.set_class(not self._waits and self.enlarged is not None, "-one")

    def chosen(self) -> str:
        """The plot that has the focus, or the first one."""
        focused = self.screen.focused
        name = focused.id if isinstance(focused, PlotView) else None
        return name if name in PLOT_BY_NAME else PLOTS[0].name

    def enlarge(self, name: str | None) -> None:
        """One plot at full size, or all four again."""
        self.enlarged = name
        self._arrange()
        for panel in PLOTS:
            self.plots[panel.name].set_class(panel.name == name, "-enlarged")
        if name is not None:
            self.plots[name].focus()

    def next_plot(self, step: int) -> None:
        """Go to the next plot, with the focus or, at full size, with the view."""
        names = [panel.name for panel in PLOTS]
        focused = self.screen.focused
        if self.enlarged is None and not isinstance(focused, PlotView):
            name = names[0 if step > 0 else -1]
        else:
            name = names[(names.index(self.enlarged or self.chosen()) + step) % len(names)]
        if self.enlarged is not None:
            self.enlarge(name)
        else:
            self.plots[name].focus()
