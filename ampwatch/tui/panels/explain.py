"""One step in slow motion: its stages in a row, and what the open one says and shows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ampwatch.explain import Block, Stage
from ampwatch.record import StepAnatomy
from ampwatch.tui.explaining import Explaining
from ampwatch.tui.foreign import plain, shorten
from ampwatch.tui.rows import Rows

HELP = """\
One step taken apart, with its numbers: forward, loss, scaled loss, gradients, unscale, check,
clip, step, update. Stages that the loop does not have are grey, ✗ is where inf or NaN is.
. goes to the next stage, and after the last one takes the next step; , goes back; e leaves.
It follows one parameter: the one chosen on the Tensors or Range tab, or one that tells most.
Reading these numbers waits for the device; the numbers of the training stay the same."""
SEPARATORS = (" → ", "  ", " ")
"""Between the stages, as there is room."""
BAD, OPEN = "✗", "bold reverse $text-accent"
GAP = 2
WIDEST_TEXT = 110
"""Longer lines are hard to read."""
Drawn = tuple[str, str]
"""A line and its style: "title", "text", "head", "bad", "new", or nothing."""


def strip(shown: Sequence[Stage], at: int, width: int) -> Content:
    """All stages in a row, the open one marked; where room is short, those around it."""
    labels = [_label(stage) for stage in shown]
    first, last = 0, len(labels)
    taken = sum(map(len, labels))
    gap = next((gap for gap in SEPARATORS if taken + len(gap) * (last - 1) <= width), " ")
    while last - first > 1 and sum(map(len, labels[first:last])) + last - first - 1 > width:
        if at - first > last - 1 - at:
            first += 1
        else:
            last -= 1
    parts: list[Content] = []
    for number in range(first, last):
        if parts:
            parts.append(Content.styled(gap, "$foreground-muted"))
        parts.append(Content.styled(labels[number], _style(shown[number], number == at)))
    return Content("").join(parts)


def _label(stage: Stage) -> str:
    return f"{BAD} {stage.name}" if stage.bad else stage.name


def _style(stage: Stage, here: bool) -> str:
    if here:
        return "bold reverse $text-error" if stage.bad else OPEN
    if stage.bad:
        return "bold $text-error"
    return "$foreground-disabled" if stage.absent else "$foreground"


def caption(anatomy: StepAnatomy, at: int, of: int) -> str:
    """Which step this is."""
    parts = [f"step {anatomy.step:,} taken apart", f"stage {at + 1} of {of}"]
    parts += [plain(each) for each in (anatomy.optimizer, anatomy.dtype) if each]
    return " · ".join(parts)


def drawn(stage: Stage, width: int) -> list[Drawn]:
    """A stage as lines of a width: its title, its sentences, its tables."""
    titled = textwrap.wrap(plain(stage.title), max(width, 12))
    lines: list[Drawn] = [(line, "bad" if stage.bad else "title") for line in titled]
    room = max(min(width, WIDEST_TEXT), 12)
    lines += [(line, "text") for line in textwrap.wrap(plain(stage.text), room)]
    for block in stage.blocks:
        lines.append(("", ""))
        lines += _table(block, width)
    return lines


def _table(block: Block, width: int) -> list[Drawn]:
    rows = [block.head, *(line.cells for line in block.lines)]
    columns = len(block.head)
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(columns)]
    room = width - sum(widths[1:]) - GAP * (columns - 1)
    widths[0] = max(min(widths[0], room), 8)
    lines: list[Drawn] = [(block.title, "head")] if block.title else []
    marks = ["column", *(line.mark for line in block.lines)]
    for row, mark in zip(cells, marks, strict=True):
        first = shorten(row[0], widths[0]).ljust(widths[0])
        rest = (cell.rjust(size) for cell, size in zip(row[1:], widths[1:], strict=True))
        lines.append(((" " * GAP).join([first, *rest]).rstrip(), mark))
    return lines


class Body(Rows):
    """The lines of the open stage."""

    FOLLOWS = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"explain--{style}" for style in ("title", "text", "head", "column", "bad", "new")
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "full_stop",
            "app.explain_next",
            "Next",
            tooltip="The next stage; after the last, the next step",
            id="explain.next",
        ),
        Binding("comma", "app.explain_back", "Back", tooltip="The stage before", id="explain.back"),
        Binding(
            "e", "app.explain", "Leave", tooltip="Leave, and go on as before", id="explain.leave"
        ),
    ]

    def __init__(self) -> None:
        super().__init__(id="explain-body")
        self._stage: Stage | None = None
        self._lines: list[Drawn] = []
        self._width = 0

    def show(self, stage: Stage) -> None:
        if stage != self._stage:
            self._stage, self._width = stage, 0
            self.scroll_to(y=0, animate=False, immediate=True)
            self.rows_changed()

    def say(self, words: str) -> None:
        """There is no stage to show yet, or none will come."""
        self.show(Stage("", words, ""))

    def count_rows(self, width: int) -> int:
        if width != self._width and self._stage is not None:
            self._lines, self._width = drawn(self._stage, width), width
        return len(self._lines)

    def row(self, index: int, width: int) -> Text:
        self.count_rows(width)
        if index >= len(self._lines):
            return Text(end="")
        line, style = self._lines[index]
        text = Text(line, no_wrap=True, end="")
        if style:
            text.stylize(self.get_component_rich_style(f"explain--{style}", partial=True))
        return text


class Explain(Vertical):
    """The row of stages, and the open one."""

    HELP = HELP

    def __init__(self) -> None:
        super().__init__(id="explain")
        self._caption = Static(id="explain-caption", markup=False)
        self._strip = Static(id="explain-strip", markup=False)
        self.body = Body()
        self._explaining: Explaining | None = None
        self._shown: object = None

    def compose(self) -> ComposeResult:
        yield self._caption
        yield self._strip
        yield self.body

    def sync(self, explaining: Explaining) -> None:
        """Show the stage that is open."""
        self._explaining = explaining
        anatomy, at = explaining.anatomy, explaining.stage
        width = self.content_size.width
        shown = (id(anatomy), at, width, "" if anatomy is not None else explaining.words())
        if shown == self._shown:
            return
        self._shown = shown
        if anatomy is None:
            self._caption.update("")
            self._strip.update("")
            self.body.say(explaining.words())
            return
        stages = explaining.stages()
        self._caption.update(Content(caption(anatomy, at, len(stages))))
        self._strip.update(strip(stages, at, width))
        self.body.show(stages[at])

    def on_resize(self) -> None:
        if self._explaining is not None:
            self.sync(self._explaining)
