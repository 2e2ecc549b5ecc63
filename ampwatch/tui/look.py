"""How the person at the screen wants to see the plots: which window, which axis for the loss."""

from __future__ import annotations

from dataclasses import dataclass

WINDOWS: tuple[int | None, ...] = (None, 1000, 100)
"""Steps that the plots show, in the order the key goes through them; None is the whole run."""


@dataclass(slots=True)
class Look:
    window: int | None = None
    loss_axis: str | None = None
    """"linear" or "log10"; None lets the range of the losses decide."""
    presenting: bool = False
    """The layout for a projector: thick lines."""
    pointer: int | None = None
    """A step that is marked on the plots because a lesson speaks of it."""

    def steps(self, last: int) -> tuple[int, int]:
        """First and last step to show of a run that has come to step ``last``."""
        if self.window is None:
            return 0, max(last, 0)
        return max(0, last - self.window + 1), max(last, 0)

    def next_window(self) -> str:
        """Go to the next window; returns it in words."""
        self.window = WINDOWS[(WINDOWS.index(self.window) + 1) % len(WINDOWS)]
        return "the whole run" if self.window is None else f"the last {self.window:,} steps"
