"""What a learner sees of a lesson: plain data that any front end can show."""

from __future__ import annotations

from dataclasses import dataclass

from ampwatch.lessons import player as states
from ampwatch.lessons.parts import CHOICES, Part, Point, Predict, Press, Table, Waiting
from ampwatch.lessons.player import NEXT, Player
from ampwatch.lessons.scene import Scene
from ampwatch.words import count_words

KEYS = (("dtype", "d"), ("scaler", "s"))
"""What a part can need the run to be in, and the key that changes it."""


@dataclass(frozen=True, slots=True)
class Page:
    """One part of a lesson as it stands."""

    part: int
    """Counted from 1; one more than there are when the lesson is over."""
    parts: int
    state: str
    text: str = ""
    """Paragraphs, with an empty line between them."""
    verdict: str = ""
    """Whether the prediction came true."""
    right: bool | None = None
    choices: tuple[tuple[str, str], ...] = ()
    """Key and words of each."""
    trouble: str = ""
    """Why the lesson does not go on, and what to do."""
    keys: tuple[str, ...] = ()
    """What to press now."""
    ask: str = ""
    """What for."""
    look: tuple[str, ...] = ()
    tab: str = "overview"
    table: Table | None = None
    step: int | None = None
    """The step that it speaks of."""
    again: bool = False
    """It is over, and read once more."""


def page_of(player: Player) -> Page:
    """The page of the part that is on."""
    count = len(player.lesson.parts)
    part, scene = player.part, player.scene
    if part is None:
        last = player.lesson.parts[-1]
        return Page(count + 1, count, states.FINISHED, text=_farewell(player), tab=last.tab)
    number = player.index + 1
    if scene is None:
        return Page(number, count, states.WAITING, player.lesson.goal, look=part.look)
    keys, ask = _wanted(player, part, scene)
    answer, choice = player.answer, player.choice
    choices = part.choices if isinstance(part, Predict) else ()
    return Page(
        number,
        count,
        player.state,
        text=player.text,
        verdict=_verdict(player),
        right=None if answer is None or choice is None else answer == choice,
        choices=tuple(zip(CHOICES, choices, strict=False)),
        trouble=_trouble(player, part, scene),
        keys=keys,
        ask=ask,
        look=part.look,
        tab=part.tab,
        table=player.table or player.tabulated(part),
        step=player.step,
    )


def _farewell(player: Player) -> str:
    title = player.lesson.title
    if player.left_out:
        left = count_words(player.left_out, "part")
        return f"This was {title!r}, with {left} left out: so it does not count as done."
    return f"{title}: done. You know now: {player.lesson.goal}"


def _verdict(player: Player) -> str:
    choice, answer, question = player.choice, player.answer, player.question
    if choice is None or answer is None or question is None:
        return ""
    if choice == answer:
        return f"You said {choice}: that is what happened."
    if answer in CHOICES[: len(question.choices)]:
        words = question.choices[CHOICES.index(answer)]
        return f"You said {choice}. What happened is {answer}: {words}."
    return f"You said {choice}. That is not what happened."


def _wanted(player: Player, part: Part, scene: Scene) -> tuple[tuple[str, ...], str]:
    """Keys to press, and what they are for."""
    if player.state == states.READING:
        return (NEXT,), "goes on" if player.index + 1 < len(player.lesson.parts) else "finishes"
    if player.state == states.ASKING and isinstance(part, Predict):
        return tuple(CHOICES[: len(part.choices)]), "what do you expect?"
    if isinstance(part, Press) and player.asked and player.state != states.BLOCKED:
        return player.asked, "again and again, until it has happened" * part.again
    if isinstance(part, Waiting) and part.steps > 1 and player.state == states.WAITING:
        return (), f"step {min(scene.steps, part.steps)} of {part.steps}"
    return (), "" if player.state == states.BLOCKED else "the lesson waits for it"


def _trouble(player: Player, part: Part, scene: Scene) -> str:
    """Why nothing happens, worst first."""
    run = scene.run
    if player.error is not None:
        return f"This lesson cannot go on: {player.error}."
    if player.state in (states.READING, states.ASKING):
        return ""
    if run.end is not None:
        return "The training has ended. Press r to begin the lesson again."
    if player.state == states.BLOCKED:
        return _foreign(part, scene)
    if scene.paused and not player.holds and {".", "space"}.isdisjoint(player.asked):
        return "The run is paused: press space."
    if player.state == states.LATE and isinstance(part, (Point, Waiting)):
        after = f"It has not happened in {count_words(player.waited, 'step')}"
        return f"{after}, so nothing is claimed. {player.said(part.otherwise)}".strip()
    return ""


def _foreign(part: Part, scene: Scene) -> str:
    last = scene.run.last
    assert last is not None
    for name, key in KEYS:
        wanted, now = getattr(part, name), getattr(last, name)
        if wanted is not None and now != wanted:
            if now is None:
                return f"This part is about the {wanted} {name}, and the run has no {name}."
            return (
                f"This does not count: the part needs {name} {wanted}, and the run is on {now}. "
                f"Press {key} until the line at the top says {wanted}."
            )
    return ""
