"""The one main screen: tabs, status, the open panel, the event line; kept in step with the run."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Footer, Static

from ampwatch.controls import Controls
from ampwatch.job import ENDED, FAILED, Job
from ampwatch.rules import Finding
from ampwatch.rules.telling import troubles
from ampwatch.session import Session
from ampwatch.tui.event_line import EventLine
from ampwatch.tui.explaining import Explaining
from ampwatch.tui.keys import WALK
from ampwatch.tui.look import Look
from ampwatch.tui.news import News
from ampwatch.tui.overview import Overview
from ampwatch.tui.panels.events_tab import EventsTab
from ampwatch.tui.panels.explain import Explain
from ampwatch.tui.panels.output import Output
from ampwatch.tui.panels.range import Range
from ampwatch.tui.panels.tensors import Table, Tensors
from ampwatch.tui.presenter import BigStatus, told
from ampwatch.tui.status import StatusLines, lower_line, state_of, upper_line
from ampwatch.tui.tab_strip import TABS, TabStrip
from ampwatch.tui.waiting import waiting_for

WIDTHS = [(0, "-tiny"), (36, "-narrow"), (68, "-normal"), (140, "-wide")]
HEIGHTS = [(0, "-flat"), (11, "-low"), (20, "-high"), (34, "-tall")]
TOO_SMALL = "This window is too small for the plots: 36x11 is enough, 80x24 is comfortable."
HINT = "Press ? for the keys and how to read the plots."
CALM = "Nothing has happened yet: no step was skipped."
EXPLAIN = "explain"
"""Shown in place of a tab while a step is gone through."""


class MainScreen(Screen[None]):
    """Widgets are made once and told what to show; each knows whether that is news."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*WALK]
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(
        self,
        session: Session,
        controls: Controls,
        job: Job | None,
        look: Look,
        name: str,
        follow: bool = False,
        stage: Container | None = None,
    ) -> None:
        super().__init__()
        self._stage = stage if stage is not None else Container(id="stage")
        self._session = session
        self._controls = controls
        self._job = job
        self._look = look
        self._run_name = name
        self._follow = follow
        self._news = News()
        self._told: Finding | None = None
        self._begun = time.monotonic()
        self.reading = False
        """A recording is being read; it holds more than is shown."""
        self.tab = TABS[0].name
        self.tabs = TabStrip()
        self.status = StatusLines()
        self.big = BigStatus()
        self.overview = Overview()
        self.range = Range()
        self.tensors = Tensors()
        self.events = EventsTab()
        self.output = Output(job.output if job is not None else None)
        self.explain = Explain()
        self._explaining: Explaining | None = None
        self._tab_before = self.tab
        self.event_line = EventLine()

    def compose(self) -> ComposeResult:
        yield self.tabs
        yield self.status
        yield self.big
        with self._stage, ContentSwitcher(initial=self.tab, id="panels"):
            yield self.overview
            yield self.range
            yield self.tensors
            yield self.events
            yield self.output
            yield self.explain
        yield Static(TOO_SMALL, id="too-small", markup=False)
        yield self.event_line
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.sync(panels=True)  # something to read in the very first frame

    @property
    def run_name(self) -> str:
        info = self._session.run.info
        return info.name if info is not None and info.name else self._run_name

    def began(self) -> None:
        """The script was started anew."""
        self._begun = time.monotonic()

    def open_tab(self, name: str) -> None:
        self.tab = name
        self.query_one(ContentSwitcher).current = name
        self.set_focus(self._keyed(name))
        self.sync(panels=True)
        if name == "events":
            self.events.focus_list()

    def _keyed(self, tab: str) -> Widget | None:
        """What the keys of a tab belong to."""
        panels: dict[str, Widget] = {
            "range": self.range,
            "tensors": self.tensors.table,
            "output": self.output,
            EXPLAIN: self.explain.body,
        }
        return panels.get(tab)

    def present(self, on: bool) -> bool:
        """The layout for a projector, or the usual one; whether it is on now."""
        self._look.presenting = on
        self.set_class(on, "-presenter")
        return on

    def chosen_tensor(self) -> str | None:
        """The parameter that is chosen on the open tab."""
        if self.tab == "tensors":
            return self.tensors.chosen
        return self.range.tensor if self.tab == "range" else None

    def open_explain(self, explaining: Explaining) -> None:
        """A step is gone through in place of the open tab."""
        self._tab_before, self._explaining = self.tab, explaining
        self.tab = EXPLAIN
        self.query_one(ContentSwitcher).current = EXPLAIN
        self.set_focus(self._keyed(EXPLAIN))
        self.sync(panels=True)

    def close_explain(self) -> None:
        """Back to the tab that was open before."""
        if self.tab == EXPLAIN:
            self.open_tab(self._tab_before)

    def on_table_chosen(self, message: Table.Chosen) -> None:
        self.range.choose(message.name)
        self.open_tab("range")

    def on_event_line_clicked(self, message: EventLine.Clicked) -> None:
        if self._told is not None:
            self.post_message(EventsTab.Explain(self._told))
        else:
            self.open_tab("events")

    def sync(self, *, panels: bool, note: str = "") -> None:
        """Show the run as it is now; ``panels``: records came, so the open panel changed too."""
        run, job = self._session.run, self._job
        self._keep_focus()
        job_state = job.state if job is not None else None
        findings = self._session.findings
        state = state_of(run, self._controls, job_state, self._follow, self.reading)
        self.status.show(
            upper_line(run, self._controls, state, self.run_name),
            lower_line(run, self._controls),
            note,
        )
        if self._look.presenting:
            self.big.show(told(run, self._controls, state, note))
        self._sync_event(state)
        flags = {"output": "!"} if state == FAILED and job is not None else {}
        bad = len(troubles(findings))
        if bad:
            flags["events"] = f"!{bad}"
        self.tabs.show(self.tab, flags)
        if self.tab == "overview":
            self._sync_overview(job_state, panels)
        elif self.tab == "output":
            self.output.sync()
        elif self.tab == "events":
            self.events.sync(run, findings)
        elif self.tab == "range":
            self.range.sync(run)
        elif self.tab == "tensors":
            self.tensors.sync(run.tensors, findings)
        elif self.tab == EXPLAIN and self._explaining is not None:
            self.explain.sync(self._explaining)

    def _keep_focus(self) -> None:
        """A window that was too small for the panels has taken the focus from the open one."""
        keyed = self._keyed(self.tab)
        if self.focused is None and keyed is not None and keyed.size:
            self.set_focus(keyed)

    def _sync_overview(self, job_state: str | None, panels: bool) -> None:
        overview, run = self.overview, self._session.run
        if not run.steps:
            seconds = time.monotonic() - self._begun
            overview.wait(*waiting_for(run, job_state, seconds, self._follow or self.reading))
        elif panels:
            overview.wait("", "")
            overview.sync(run, self._look)

    def _sync_event(self, state: str) -> None:
        run, line = self._session.run, self.event_line
        error = self._job.error if self._job is not None else None
        error = error or (run.end.error if run.end is not None else None)
        latest = run.events.latest
        findings = self._session.findings
        found = self._told = self._news.choose(run, findings, time.monotonic())
        if state == FAILED:
            cause = f" · {found.message}" if found is not None else ""
            line.show(f"The training failed: {error or 'no reason was given'}{cause}", "error")
        elif found is not None:
            line.show(found.message, found.severity)
        elif latest is not None:
            line.show(latest.text, latest.severity)
        elif not run.steps and state not in ENDED and self._job is not None:
            printed = " ".join(self._job.output.tail(1)).strip()
            line.show(f"The script says: {printed}" if printed else HINT)
        else:
            line.show(CALM if run.steps else "")
