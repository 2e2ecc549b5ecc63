"""The row of tabs: a click or the number of a tab opens it."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget

OPEN = "bold $background on $primary"
OTHER, FLAGGED = "$foreground", "bold $text-error"
BRAND = "$foreground-muted"


@dataclass(frozen=True, slots=True)
class Tab:
    name: str
    title: str
    words: str


TABS: tuple[Tab, ...] = (
    Tab("overview", "Overview", "The plots"),
    Tab("range", "Range", "Where the gradients lie in fp16, bf16 or fp8"),
    Tab("tensors", "Tensors", "The gradient of each parameter"),
    Tab("events", "Events", "Everything that happened"),
    Tab("output", "Output", "What the script printed"),
)


def tab_bindings() -> list[Binding]:
    return [
        Binding(
            str(number),
            f"tab('{tab.name}')",
            tab.title,
            show=False,
            tooltip=f"{tab.title}: {tab.words[0].lower()}{tab.words[1:]}",
            id=f"screen.tab.{tab.name}",
        )
        for number, tab in enumerate(TABS, 1)
    ]


class TabStrip(Widget):
    """Shows which tab is open and which ones want to be looked at."""

    @dataclass
    class Chosen(Message):
        name: str

    def __init__(self) -> None:
        super().__init__(id="tabs")
        self.open = TABS[0].name
        self.flags: dict[str, str] = {}

    def show(self, open_tab: str, flags: dict[str, str]) -> None:
        """``flags``: what stands behind the titles of tabs that want to be looked at."""
        if (open_tab, flags) != (self.open, self.flags):
            self.open, self.flags = open_tab, flags
            self.refresh()

    def labels(self) -> list[str]:
        """What stands on each tab; a flagged one has its flag behind it."""
        return [
            f" {number} {tab.title}{f' {flag}' if (flag := self.flags.get(tab.name)) else ''} "
            for number, tab in enumerate(TABS, 1)
        ]

    def render(self) -> Content:
        parts = []
        for tab, label in zip(TABS, self.labels(), strict=True):
            style = FLAGGED if tab.name in self.flags else OTHER
            parts.append(Content.styled(label, OPEN if tab.name == self.open else style))
        tabs = Content("").join(parts)
        brand = "ampwatch "
        space = self.content_size.width - tabs.cell_length - len(brand)
        if space < 2:
            return tabs
        return Content("").join([tabs, Content(" " * space), Content.styled(brand, BRAND)])

    def on_click(self, event: Click) -> None:
        left = 0
        for tab, label in zip(TABS, self.labels(), strict=True):
            left += len(label)
            if event.x < left:
                self.post_message(self.Chosen(tab.name))
                return
