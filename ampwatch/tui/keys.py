"""The keys that are about the screen and the run; the training's own are in knobs.py."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from ampwatch.tui.knobs import knob_bindings
from ampwatch.tui.tab_strip import tab_bindings

EXPLAIN = Binding(
    "e",
    "explain",
    "Explain",
    tooltip="Take the next step apart, stage by stage",
    id="training.explain",
)
SCREEN = (
    Binding(
        "z",
        "window",
        "Window",
        tooltip="Plot all steps, the last 1000 or the last 100",
        id="screen.window",
    ),
    Binding(
        "l",
        "loss_axis",
        "Log",
        show=False,
        tooltip="Logarithmic or linear loss",
        id="screen.loss_axis",
    ),
    Binding(
        "m,enter",
        "enlarge",
        "Enlarge",
        tooltip="One plot at full size, and back",
        id="screen.enlarge",
    ),
    Binding(
        "p",
        "presenter",
        "Presenter",
        show=False,
        tooltip="Large and bold, for a projector, and back",
        id="screen.presenter",
    ),
    Binding("escape", "back", "Back", show=False, tooltip="Close what is open", id="screen.back"),
)
# First in the footer: what a narrow window cuts off must be found by these.
FIRST = (
    Binding("question_mark", "help", "Help", tooltip="Keys, and how to read it", id="run.help"),
    Binding(
        "q",
        "leave",
        "Quit",
        tooltip="Stop the script and leave; twice: end it at once",
        id="run.quit",
    ),
)
# Of the screen: Textual binds them there as well, to its own walk through all widgets.
WALK: tuple[BindingType, ...] = (
    Binding(
        "tab",
        "app.next_plot(1)",
        "Next",
        show=False,
        tooltip="Go to the next plot",
        id="screen.next",
    ),
    Binding(
        "shift+tab",
        "app.next_plot(-1)",
        "Previous",
        show=False,
        tooltip="Go to the plot before",
        id="screen.previous",
    ),
)
RUN = (
    Binding(
        "r",
        "restart",
        "Restart",
        show=False,
        tooltip="Stop the script and start it again",
        id="run.restart",
    ),
    Binding(
        "x",
        "picture",
        "Picture",
        show=False,
        tooltip="Save the screen as a picture (SVG) in this folder",
        id="run.picture",
    ),
    Binding(
        "ctrl+p",
        "command_palette",
        "Palette",
        show=False,
        tooltip="Search everything that can be done",
        id="run.palette",
    ),
    # Textual would answer ctrl+c with a hint about another key.
    Binding("ctrl+c,ctrl+q", "leave", "Quit", show=False, priority=True, tooltip="Quit as well"),
)


def all_bindings() -> list[BindingType]:
    """Every key, in the order of the footer."""
    return [*FIRST, *knob_bindings(), EXPLAIN, *SCREEN, *tab_bindings(), *RUN]
