"""The dashboard: the screens, the timer and the global keys; everything else is delegated."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.notifications import SeverityLevel
from textual.screen import Screen

from ampwatch import controls as knobs
from ampwatch.controls import Controls
from ampwatch.job import STOPPING, Job
from ampwatch.session import Session
from ampwatch.tui.explaining import Explaining
from ampwatch.tui.explanation import ExplanationScreen
from ampwatch.tui.help import HelpScreen, tab_keys
from ampwatch.tui.keys import WALK, all_bindings
from ampwatch.tui.knobs import TURN_BY_NAME, Knobs, why_not
from ampwatch.tui.look import Look
from ampwatch.tui.main_screen import EXPLAIN, MainScreen
from ampwatch.tui.pace import Pace, catch_up
from ampwatch.tui.palette import WithPalette
from ampwatch.tui.panels import loss
from ampwatch.tui.panels.events_tab import EventsTab
from ampwatch.tui.picture import save_picture
from ampwatch.tui.plot_view import PlotView
from ampwatch.tui.quitting import POLL, Quitting, on_hangup
from ampwatch.tui.tab_strip import TabStrip
from ampwatch.tui.themes import CONTRAST_DARK, CONTRAST_LIGHT, DARK, THEMES

SECONDS_TO_READ = 6.0
FIRST_STEP_POLL = 0.1


class DashboardApp(WithPalette):
    """Shows a session while it goes on.

    Args:
        session: where the run comes from; from now on only this app pumps it.
        controls: the knobs of the run.
        job: the training, to be stopped and started again; None for a recorded run.
        name: what the run is called until it says so itself.
        follow: a recorded run may still grow.
        stage: holds the tabs, with something beside them.
    """

    TITLE = "ampwatch"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = all_bindings()

    def __init__(
        self,
        session: Session,
        controls: Controls,
        job: Job | None,
        *,
        name: str = "",
        follow: bool = False,
        stage: Container | None = None,
    ) -> None:
        super().__init__()
        self.session = session
        self.job = job
        self.look = Look()
        self._knobs = Knobs(controls)
        self._pace = Pace.from_environment()
        self._said = ("", 0.0)
        self._quitting = Quitting(job)
        self._behind = False
        self.explaining = Explaining(controls, job)
        self._main = MainScreen(session, controls, job, self.look, name, follow, stage)
        for theme in THEMES:
            self.register_theme(theme)
        if "TEXTUAL_THEME" not in os.environ:
            self.theme = DARK.name
        self._theme_before = self.theme

    def get_default_screen(self) -> Screen[None]:
        return self._main

    def on_ready(self) -> None:
        on_hangup(self._hung_up)
        self._frame()

    def take_frame(self) -> None:
        """Take in what came and show it."""
        caught = catch_up(self.session)
        self._behind = caught.behind
        for notice in caught.notices:
            if notice.refused and notice.text:
                self._say(notice.text, refused=True)
                if notice.knob == knobs.EXPLAIN.name:
                    self.explaining.refused(notice.text)
        if self.explaining.open and self._main.tab != EXPLAIN:
            self.explaining.leave()  # another tab was opened
        self.explaining.follow(self.session.run)
        self._main.reading = caught.behind and self.job is None
        self._main.sync(panels=caught.came, note=self._quitting.note())

    def _frame(self) -> None:
        """One frame, and when the next one is due."""
        self.take_frame()
        if self._quitting.due(time.monotonic()):
            self.exit()
            return
        wait = self._pace.wait(time.process_time())
        if self._quitting.asked or (self._behind and self.job is None):
            wait = POLL  # somebody waits
        elif not self.session.run.steps:
            wait = FIRST_STEP_POLL  # such a frame costs nothing, and somebody waits as well
        self.set_timer(wait, self._frame)

    def _say(self, text: str, *, refused: bool = False) -> None:
        """Show a sentence; the same one is not piled up by a key that is held down."""
        now = time.monotonic()
        if text != self._said[0] or now - self._said[1] > SECONDS_TO_READ:
            self._said = (text, now)
            kind: SeverityLevel = "warning" if refused else "information"
            self.notify(text, severity=kind, timeout=SECONDS_TO_READ, markup=False)

    def _redraw(self) -> None:
        self._main.sync(panels=True, note=self._quitting.note())

    def action_turn(self, name: str) -> None:
        if self.explaining.open and TURN_BY_NAME[name].knob is knobs.STEP:
            self.action_explain_next()  # the key that steps goes through the stages
            return
        reason = why_not(self.job)
        if reason is not None:
            self._say(reason, refused=True)
            return
        answer = self._knobs.turn(TURN_BY_NAME[name], self.session.run)
        if answer:
            self._say(answer)
        self._main.sync(panels=False, note=self._quitting.note())

    def action_explain(self) -> None:
        """Take the next step apart and go through its stages; once more: go on as before."""
        if self.explaining.open:
            self._leave_explain()
            return
        if self.job is not None and self.job.state == STOPPING:
            self._say("The training is being stopped.", refused=True)
            return
        reason = self.explaining.enter(self.session.run, self._main.chosen_tensor())
        if reason is not None:
            self._say(reason, refused=True)
            return
        self._main.open_explain(self.explaining)

    def action_explain_next(self) -> None:
        self._explain(self.explaining.next())

    def action_explain_back(self) -> None:
        self._explain(self.explaining.back())

    def _explain(self, answer: str | None) -> None:
        if answer:
            self._say(answer)
        self._main.sync(panels=False, note=self._quitting.note())

    def _leave_explain(self) -> None:
        self.explaining.leave()
        self._main.close_explain()

    def action_presenter(self) -> None:
        """The layout for a projector, and back."""
        presenting = self._main.present(not self.look.presenting)
        if presenting:
            self._theme_before = self.theme
            self.theme = (CONTRAST_DARK if self.current_theme.dark else CONTRAST_LIGHT).name
        elif self.theme in (CONTRAST_DARK.name, CONTRAST_LIGHT.name):
            self.theme = self._theme_before
        self._redraw()

    def action_window(self) -> None:
        self._say(f"The plots show {self.look.next_window()}.")
        self._redraw()

    def action_loss_axis(self) -> None:
        log = loss.spec(self.session.run, self.look).axis == "log10"
        self.look.loss_axis = "linear" if log else "log10"
        self._say(f"The loss is drawn on a {'linear' if log else 'logarithmic'} axis.")
        self._redraw()

    def action_tab(self, name: str) -> None:
        self._main.open_tab(name)

    def on_tab_strip_chosen(self, message: TabStrip.Chosen) -> None:
        self._main.open_tab(message.name)

    def action_enlarge(self, name: str | None = None) -> None:
        overview = self._main.overview
        if self._main.tab != "overview":
            self._main.open_tab("overview")
        overview.enlarge(None if overview.enlarged else name or overview.chosen())
        self._redraw()

    def on_plot_view_chosen(self, message: PlotView.Chosen) -> None:
        self.action_enlarge(message.name)

    def action_next_plot(self, step: int) -> None:
        if self._main.tab == "overview":
            self._main.overview.next_plot(step)
            self._redraw()

    def on_events_tab_explain(self, message: EventsTab.Explain) -> None:
        if message.finding is None:
            self._say("Nothing was recognised in this run so far: there is nothing to explain.")
        elif isinstance(self.screen, MainScreen):
            rule = self.session.rule_of(message.finding)
            self.push_screen(ExplanationScreen(message.finding, rule))

    async def action_back(self) -> None:
        overview = self._main.overview
        if self.explaining.open:
            self._leave_explain()
        elif self._main.tab != "overview":
            self._main.open_tab("overview")
        elif overview.enlarged:
            overview.enlarge(None)
            self._redraw()
        else:
            self._main.set_focus(None)

    def action_restart(self) -> None:
        if self.job is None:
            self._say("This is a recording: there is no script to start again.", refused=True)
            return
        if self._quitting.asked:
            self._say("The script is being stopped.", refused=True)
            return
        if self.explaining.open:
            self.explaining.forget()
            self._main.close_explain()
        self.job.restart()
        self.session.restart()
        self._main.began()
        self._redraw()

    def action_picture(self) -> None:
        name = self._main.run_name
        svg = self.export_screenshot(title=f"ampwatch: {name}" if name else "ampwatch")
        self._say(save_picture(svg, Path.cwd(), name, self.session.run.steps))

    def action_help(self) -> None:
        if isinstance(self.screen, MainScreen):
            self.push_screen(HelpScreen([*self.BINDINGS, *WALK, *tab_keys()]))

    def action_leave(self) -> None:
        first = not self._quitting.asked
        self._quitting.ask(time.monotonic())
        if self._quitting.due(time.monotonic()):
            self.exit()
        elif first:
            self._redraw()
            self.set_timer(POLL, self._frame)

    async def action_quit(self) -> None:
        self.action_leave()

    def _hung_up(self, number: int) -> None:
        if self.job is not None:
            self.job.stop()
        self.exit(return_code=128 + number)
