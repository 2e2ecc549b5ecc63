"""A static scale against a dynamic one, and the best static scale from the range view."""

from __future__ import annotations

from ampwatch.controls import EXPLAIN, SCALE, SCALER, TARGET_GAIN
from ampwatch.formats import FLOAT16
from ampwatch.lessons.parts import Lesson, Point, Predict, Press, Say, Table, Wait
from ampwatch.lessons.player import SETTLING_STEPS
from ampwatch.lessons.scene import Scene
from ampwatch.lessons.targets import keys_to_targets
from ampwatch.run.ranges import doublings_of
from ampwatch.words import count_words, power_words, scale_words, share_words

MARGIN = 4
"""Doublings that are kept free: activation gradients can be larger than parameter gradients, and
the next batch can be worse than this one."""
QUIET_STEPS = 80
STUCK_STEPS = 20
MOST_LOST = 0.01
GAIN = 100
LOWERED = 1 / 16
"""So that the best scale is hardly ever the one that stands already, and one or a few keys away."""


def best(scene: Scene) -> int | None:
    """The power of two of a good static scale: some room above, and what is lost below is least."""
    told = scene.fit(FLOAT16, None)
    if told is None or told.highest is None or told.lowest is None:
        return None
    return max(told.highest - MARGIN, min(told.lowest, told.highest))


def candidates(scene: Scene) -> Table | None:
    """What fp16 would make of these gradients at several static scales."""
    scene = scene.since("range")
    power, told = best(scene), scene.fit(FLOAT16, None)
    if power is None or told is None or told.highest is None:
        return None
    rows: list[tuple[str, ...]] = []
    marked: frozenset[int] = frozenset()
    for each in sorted({0, power - 8, power - 4, power, told.highest, told.highest + 2}):
        fit = scene.fit(FLOAT16, 2.0**each)
        if fit is None or fit.headroom is None:
            return None
        if each == power:
            marked = frozenset({len(rows)})
        rows.append(
            (
                power_words(2.0**each),
                share_words(fit.flushed, 1),
                share_words(fit.subnormal, 1),
                share_words(fit.overflowing, 1),
                f"{fit.headroom:.1f}",
            )
        )
    head = ("static scale", "becomes 0", "loses bits", "overflows", "doublings left")
    return Table("Parameter gradients in fp16, by the scale", head, tuple(rows), marked)


def best_words(scene: Scene) -> str:
    power = best(scene)
    told = scene.fit(FLOAT16, 2.0 ** (power or 0))
    assert power is not None
    assert told is not None
    return (
        f"At 2^{power} nothing overflows, {share_words(told.flushed, 1)} become 0, and "
        f"{told.headroom:.1f} doublings are left for the worst batch and for activation gradients, "
        "which can be larger than these.\n\nToo low loses small gradients. Too high loses whole "
        "steps. The best static scale is the highest that still leaves some room."
    )


def at_best(scene: Scene) -> bool:
    return scene.scale is not None and doublings_of(scene.scale) == scene.kept["best"]


def lowered(scene: Scene) -> bool:
    """The scale is fixed where it was set to."""
    set_by_hand = any(move.by_hand and move.after < move.before for move in scene.moves)
    return scene.scaler == "static" and set_by_hand


def keys_to_best(scene: Scene) -> str:
    """One key a doubling or halving, from the scale that stands to the best one."""
    away = scene.kept["best"] - round(doublings_of(scene.run.final_scale()))
    return " ".join(["]" if away > 0 else "["] * abs(away))


def quiet_words(scene: Scene) -> str:
    told = scene.since("range").fit(FLOAT16, scene.scale)
    assert told is not None
    return (
        f"{count_words(scene.steps, 'step')} at {scale_words(scene.scale)}: none was skipped, and "
        f"{share_words(told.flushed, 1)} of the gradients become 0. A static scale works, as long "
        "as gradients keep their size."
    )


def quiet(scene: Scene) -> bool:
    told = scene.since("range").fit(FLOAT16, scene.scale)
    return not scene.skips and told is not None and told.flushed <= MOST_LOST


def stuck(scene: Scene) -> bool:
    """Not one of the latest steps was taken, and the scale did not move."""
    first = scene.run.steps - STUCK_STEPS
    return len(scene.since_step(first).skips) == STUCK_STEPS and not scene.since_step(first).moves


def stuck_words(scene: Scene) -> str:
    turned = scene.since("large").turned
    since = scene if turned is None else scene.since_step(turned)
    return (
        f"Since the targets were enlarged {len(since.skips)} of {count_words(since.steps, 'step')} "
        f"were skipped, the last {STUCK_STEPS} without an exception, and the scale is still "
        f"{scale_words(scene.scale)}. No weight moves, so the gradients stay too large: a static "
        "scale cannot get out of this."
    )


def taken(scene: Scene) -> bool:
    last = scene.last
    return last is not None and last.scaler == "dynamic" and last.skipped is False


def taken_words(scene: Scene) -> str:
    return (
        f"The dynamic scaler skipped {count_words(len(scene.skips), 'step')} more, halved the "
        f"scale each time, and steps are taken again at {scale_words(scene.scale)}.\n\nA dynamic "
        "scale costs a skipped step now and then. A static one costs nothing, until the day it "
        "is wrong."
    )


LESSON = Lesson(
    id="static",
    number=5,
    title="Static against dynamic",
    goal="The best static scale is read off the range; a dynamic one follows it.",
    demo="linear",
    args=("--steps", "1000000"),
    sources=(
        "Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2: choosing a factor",
        "torch/amp/grad_scaler.py: update(new_scale) keeps a scale that is given to it",
    ),
    parts=(
        Say(
            "A static scale is a number that you choose and that never changes. Then it has to be "
            "chosen well: large enough that small gradients do not become 0, and small enough "
            "that no gradient overflows.\n\nThe range of the gradients tells which. It has to be "
            "measured first.",
            tab="range",
        ),
        Wait(
            "Some steps are looked at closely: where do all their gradients lie?",
            name="range",
            do=((EXPLAIN, None),),
            retry=20,
            steps=40,
            until=lambda scene: best(scene) is not None,
            dtype="float16",
            tab="range",
        ),
        Point(
            best_words,
            name="best",
            keep=best,
            holds=lambda scene: best(scene) is not None and candidates(scene) is not None,
            table=candidates,
            dtype="float16",
            otherwise="The gradients could not be measured.",
        ),
        Wait(
            "The lesson makes the scaler static, at a sixteenth of its scale: from now on it keeps "
            "that one.",
            do=((SCALER, "static"), (SCALE, LOWERED)),
            until=lowered,
            within=SETTLING_STEPS,
            look=("scale",),
            otherwise="The scaler did not become static. Press r to begin the lesson again.",
        ),
        Press(
            lambda scene: (
                f"The scale stands at {scale_words(scene.run.final_scale())}, and the best one of "
                f"the table is 2^{scene.kept['best']}. ] doubles the scale and [ halves it."
            ),
            keys=keys_to_best,
            until=at_best,
            dtype="float16",
            scaler="static",
            look=("scale",),
        ),
        Wait(
            "Look at the scale and at the loss: is anything lost?",
            name="quiet",
            steps=QUIET_STEPS,
            dtype="float16",
            scaler="static",
            look=("scale", "loss"),
        ),
        Point(
            quiet_words,
            holds=quiet,
            dtype="float16",
            scaler="static",
            look=("scale", "loss"),
            otherwise="A step was skipped, or small gradients are lost: this scale does not fit.",
        ),
        Predict(
            "Now the targets become a hundred times larger, and the gradients with them. What does "
            "the static scale do?",
            choices=(
                "It halves a few times, and training goes on",
                "Every step is skipped from now on",
                "Nothing: the scale is divided out again",
            ),
            look=("scale", "loss"),
        ),
        Press(
            "Press t twice: targets a hundred times larger.",
            keys=keys_to_targets(GAIN),
            name="large",
            until=lambda scene: (
                scene.asked(TARGET_GAIN) == GAIN
                and scene.last is not None
                and scene.last.target_gain == GAIN
            ),
            dtype="float16",
            scaler="static",
            look=("scale", "loss"),
        ),
        Wait(
            "Look at the skipped steps (▼).",
            steps=STUCK_STEPS,
            until=stuck,
            dtype="float16",
            scaler="static",
            look=("scale", "loss"),
            otherwise="Some steps are taken: this scale still has room.",
        ),
        Point(
            stuck_words,
            holds=stuck,
            answer=lambda scene: "b",
            scaler="static",
            look=("scale", "loss"),
            otherwise="Some steps are taken: this scale still has room.",
        ),
        Wait(
            "The lesson makes the scaler dynamic again.",
            do=((SCALER, "dynamic"),),
            until=taken,
            look=("scale", "loss"),
            otherwise="Every step is still skipped.",
        ),
        Point(
            taken_words,
            holds=lambda scene: taken(scene) and bool(scene.skips),
            look=("scale", "loss"),
            otherwise="No step was skipped on the way down.",
        ),
    ),
)
