"""What the overview says before the first step: what is being waited for, and for how long."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from ampwatch.run import Run
from ampwatch.tui.foreign import plain

PATIENCE = 15.0
"""Seconds with torch loaded and no step, after which it is said what ampwatch looks for."""
LOOKED_FOR = (
    "ampwatch looks for the step() of a torch.optim optimizer, called directly or through "
    "torch.amp.GradScaler.step(). A loop that updates its weights in another way, or in a "
    "process it starts, can call ampwatch.hook itself."
)


def waiting_for(
    run: Run, job_state: str | None, seconds: float, more_to_come: bool = False
) -> tuple[str, str]:
    """What to say while there is no step: a headline and what is behind it.

    ``more_to_come``: a recording is still being read, or may grow.
    """
    if job_state is None:
        if run.end is not None or not more_to_come:
            return "This recording holds no optimizer step.", LOOKED_FOR
        return "No step in this recording yet.", "It is read on as it grows."
    if job_state in ("failed", "finished", "stopped"):
        headline = {
            "failed": "The script failed before its first optimizer step.",
            "finished": "The script ended without an optimizer step.",
            "stopped": "The script was stopped before its first optimizer step.",
        }[job_state]
        more = "Press 5 for what it printed." if job_state == "failed" else LOOKED_FOR
        return headline, more
    if job_state == "stopping":
        return "Stopping before the first optimizer step.", ""
    if run.info is None or run.info.torch is None:
        return "Starting: torch is loading…", ""
    if seconds < PATIENCE:
        return "Waiting for the first optimizer step…", ""
    return f"No optimizer step in {seconds:,.0f} seconds.", LOOKED_FOR


class WaitingCard(Widget):
    """Stands where the plots will be."""

    def __init__(self) -> None:
        super().__init__(id="waiting")
        self._shown: tuple[str, str] = ("", "")

    def show(self, headline: str, more: str) -> None:
        if (headline, more) != self._shown:
            self._shown = (headline, more)
            self.refresh(layout=True)

    def render(self) -> Content:
        headline, more = self._shown
        parts = [Content.styled(plain(headline), "bold")]
        if more:
            parts += [Content(""), Content.styled(plain(more), "$foreground-muted")]
        return Content("\n").join(parts)
