"""Clipping before and after unscale_: the same two lines in the wrong order."""

from __future__ import annotations

import math
from typing import TypeAlias

from ampwatch.lessons.parts import Lesson, Point, Predict, Press, Say, Wait
from ampwatch.lessons.scene import Move, Scene
from ampwatch.words import number_words, scale_words

LIMIT = 0.1
"""CLIP_NORM of the demo."""
RIGHT, WRONG = "", ":SGD 2"
"""The series of the two copies: the first optimizer has the plain names."""
SHORT_STEPS = 60
BEHIND = 5.0
"""So many times the other's loss: no accident of one batch."""
AROUND = 8
"""Steps around a move of the scale; one of them may have been skipped."""
NEAR = 0.01
"""Rounding of fp16 gradients and of one small number in clip_grad_norm_ (1e-6) are below this."""


def clipped(scene: Scene, which: str) -> float | None:
    """The norm after clipping, at the latest step at which both copies were clipped."""
    return scene.middle(f"clipped_norm{which}", 5)


def loss(scene: Scene, which: str) -> float | None:
    return scene.middle(f"loss{which}", 10)


def shrunk(scene: Scene) -> bool:
    """The one is clipped to the limit, the other to the limit divided by the scale."""
    right, wrong, scale = clipped(scene, RIGHT), clipped(scene, WRONG), scene.middle("scale", 5)
    if right is None or wrong is None or not scale:
        return False
    return right <= LIMIT * (1 + NEAR) and abs(wrong * scale / LIMIT - 1) <= NEAR


def shrunk_words(scene: Scene) -> str:
    return (
        f"Clipped after unscale_: a norm of {number_words(clipped(scene, RIGHT))}. Clipped before, "
        f"the lowest curve: {number_words(clipped(scene, WRONG))}, which is 0.1 divided by the "
        f"scale, "
        f"{scale_words(scene.middle('scale', 5))}.\n\nThe scaled norm was far above 0.1, so it was "
        "cut to 0.1. Then step() divided the scale out, of what was left."
    )


def behind(scene: Scene) -> bool:
    right, wrong = loss(scene, RIGHT), loss(scene, WRONG)
    return right is not None and wrong is not None and wrong > BEHIND * right


def behind_words(scene: Scene) -> str:
    right, wrong = loss(scene, RIGHT) or 1, loss(scene, WRONG) or 0
    return (
        f"After {scene.run.steps} steps the copy that is clipped after unscale_ (the lower curve) "
        f"has a loss of {number_words(right)}, the other one {number_words(wrong)}: "
        f"{wrong / right:.0f} times as much. Nothing crashed, and torch said nothing."
    )


Norms: TypeAlias = tuple[float, float]
"""After clipping, of the right copy and of the wrong one."""


def measured(scene: Scene, scale: float, steps: range) -> Norms | None:
    """At the first of these steps that was not skipped, at this scale."""
    for step in steps:
        right, wrong = (scene.value(f"clipped_norm{which}", step) for which in (RIGHT, WRONG))
        if right and wrong and math.isfinite(right + wrong) and scene.value("scale", step) == scale:
            return right, wrong
    return None


def moved(scene: Scene) -> tuple[Move, Norms, Norms] | None:
    """The scale halved by hand, and the norms before and after it."""
    for move in scene.moves:
        if move.by_hand and move.after < move.before:
            first = move.step
            before = measured(scene, move.before, range(first - 1, first - AROUND, -1))
            after = measured(scene, move.after, range(first, first + AROUND))
            if before is not None and after is not None:
                return move, before, after
    return None


def followed(scene: Scene) -> bool:
    """The wrong copy's norm grew as much as the scale shrank."""
    found = moved(scene.since("halved"))
    if found is None:
        return False
    move, (_, before), (_, after) = found
    return abs((after / before) * (move.after / move.before) - 1) <= NEAR


def moved_at(scene: Scene) -> int | None:
    found = moved(scene.since("halved"))
    return None if found is None else found[0].step


def followed_words(scene: Scene) -> str:
    found = moved(scene.since("halved"))
    assert found is not None
    move, (right, before), (right_after, after) = found
    first, then = number_words(right), number_words(right_after)
    stayed = f"stayed at {first}" if first == then else f"went from {first} to {then}"
    return (
        f"The scale went from {scale_words(move.before)} to {scale_words(move.after)}, and the "
        f"second copy's step from {number_words(before)} to {number_words(after)}: it is as long "
        "as the scale says, and changes whenever the scaler moves the scale. The first copy's "
        f"{stayed}: its gradients do not have the scale in them when they are clipped."
    )


def named(scene: Scene) -> bool:
    return scene.happened("clip-while-scaled")


LESSON = Lesson(
    id="clipping",
    number=7,
    title="Clipping and unscale_",
    goal="Unscale first, then clip: a limit is for the true gradients.",
    demo="clipping",
    args=("--steps", "1000000"),
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html, Gradient clipping",
        "torch/nn/utils/clip_grad.py: max_norm / (total_norm + 1e-6), at most 1",
    ),
    parts=(
        Say(
            "Two copies of one net, the same batches, one scaler. Both clip their gradients to a "
            "norm of 0.1. Two lines differ in order:\n\n"
            "  first copy:   scaler.unscale_(opt)  then  clip_grad_norm_(...)\n"
            "  second copy:  clip_grad_norm_(...), and step() unscales later",
            look=("scale",),
        ),
        Predict(
            lambda scene: (
                f"The scale is {scale_words(scene.run.final_scale())}. How far does the second "
                "copy move in each step?"
            ),
            choices=(
                "As far as the first: both are clipped to 0.1",
                "Too far: the scale is still in its gradients",
                "Hardly at all: as many times too little as the scale is large",
            ),
            look=("scale",),
        ),
        Wait(
            "Look at the gradient norms after clipping.",
            name="short",
            steps=SHORT_STEPS,
            scaler="dynamic",
            look=("grad_norm", "loss"),
        ),
        Point(
            shrunk_words,
            holds=shrunk,
            answer=lambda scene: "c",
            scaler="dynamic",
            look=("grad_norm",),
            otherwise="Both copies are clipped to the same true norm.",
        ),
        Wait(
            "What that does to the loss takes some more steps.",
            name="loss",
            until=behind,
            within=1000,
            scaler="dynamic",
            look=("loss", "grad_norm"),
            otherwise="The losses are too near to each other to say so.",
        ),
        Point(
            behind_words,
            holds=behind,
            look=("loss",),
            otherwise="The losses are too near to each other to say so.",
        ),
        Press(
            "Now halve the scale: press [. Only the second copy should notice.",
            keys="[",
            again=True,
            name="halved",
            until=followed,
            scaler="dynamic",
            look=("grad_norm", "scale"),
            otherwise="The second copy's step did not follow the scale.",
        ),
        Point(
            followed_words,
            holds=followed,
            step=moved_at,
            look=("grad_norm", "scale"),
            otherwise="The second copy's step did not follow the scale.",
        ),
        Point(
            "ampwatch recognises the mistake from the order of the calls: it is on the Events "
            "tab, which is open now; enter explains it.\n\nRemember: scaler.unscale_(optimizer), "
            "then clip, then scaler.step(optimizer). step() knows that the gradients are unscaled "
            "already and does not divide twice.",
            holds=named,
            tab="events",
            otherwise="No gradients were clipped while they carried the scale.",
        ),
    ),
)
