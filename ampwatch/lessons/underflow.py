"""Underflow: what fp16 makes of small gradients, and how a scale saves them."""

from __future__ import annotations

import math

from ampwatch.controls import EXPLAIN, SCALER
from ampwatch.formats import FLOAT16
from ampwatch.lessons.parts import Lesson, Point, Predict, Press, Say, Wait
from ampwatch.lessons.scene import Scene
from ampwatch.run.ranges import doublings_of
from ampwatch.words import number_words, power_words, share_words

STILL_STEPS = 60
LOST = 0.9
"""Nearly all values: what is said of them is said of the training."""
SAVED = 0.05
LEARNED = 0.2
"""Of the loss: as small a part is left once the net has learned its task."""


def norms(scene: Scene) -> list[float]:
    return scene.values("grad_norm", scene.run.steps - STILL_STEPS, scene.run.steps - 1)


def all_zero(scene: Scene) -> bool:
    return len(norms(scene)) == STILL_STEPS and not any(norms(scene))


def zero_words(scene: Scene) -> str:
    loss = scene.last.loss if scene.last is not None else None
    return (
        f"In the last {STILL_STEPS} steps the gradient norm was exactly 0, each time, while the "
        f"loss is {number_words(loss)} and not 0. Every gradient was rounded to 0 on its way "
        "back: this is underflow. (The marks ! stand for 0 here: it has no place on a logarithmic "
        "axis.)\n\nNothing crashed and nothing is inf. A loss that no longer falls is all that "
        "you would see."
    )


def saved(scene: Scene) -> bool:
    """Nearly everything would be 0 without the scale, and next to nothing is with it."""
    told = scene.fit(FLOAT16, scene.scale)
    return told is not None and told.flushed_unscaled >= LOST and told.flushed <= SAVED


def range_words(scene: Scene) -> str:
    told, spread = scene.fit(FLOAT16, scene.scale), scene.spread
    assert told is not None
    assert spread is not None
    largest = "" if spread.largest is None else f" The largest is {number_words(spread.largest)}."
    return (
        f"The upper band has the true gradients.{largest} {share_words(told.flushed_unscaled, 1)} "
        "of them lie at ╱, where fp16 has only 0.\n\nThe lower band has the same gradients times "
        f"the scale, {power_words(scene.scale or 1)}, which is {doublings_of(scene.scale):.0f} "
        f"doublings to the right: {share_words(told.flushed, 1)} become 0."
    )


def highest_loss(scene: Scene) -> tuple[float, int]:
    """The largest loss since the scaler is on, and its step: there a task was new."""
    points = scene.points("loss", scene.began, scene.run.steps - 1)
    return max(((loss, step) for step, loss in points if math.isfinite(loss)), default=(0.0, 0))


def learned(scene: Scene) -> bool:
    """A task that was new is learned by now."""
    scene = scene.since("on")
    now = scene.middle("loss", 10)
    return now is not None and now < LEARNED * highest_loss(scene)[0]


def norm_words(scene: Scene) -> str:
    scene = scene.since("on")
    (start, step), now = highest_loss(scene), scene.middle("loss", 10)
    norm = scene.middle("grad_norm", 10)
    return (
        f"The loss was {number_words(start)} at step {step} and is {number_words(now)} now: the "
        f"net learns. The gradient norm is {number_words(norm)}, told without the scale.\n\n"
        "The scaler multiplies the loss before backward, so that each gradient comes out larger "
        "by the same factor, and divides it out again in fp32, which has no trouble with small "
        "numbers."
    )


LESSON = Lesson(
    id="underflow",
    number=2,
    title="Underflow",
    goal="fp16 makes small gradients 0; the scale lifts them into its range.",
    demo="underflow",
    args=("--steps", "1000000"),
    sources=(
        "IEEE 754-2019, binary16: 5 bits of exponent, 10 of fraction",
        "torch.finfo(torch.float16)",
        "Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2",
    ),
    parts=(
        Say(
            "This net trains in fp16, and its loss is tiny: it is multiplied by 1e-7, as if it "
            "were one small term among many. So its gradients are tiny as well.\n\n"
            f"The smallest number of fp16 above 0 is 2^{FLOAT16.lowest}, about 6e-8. What is at "
            "most half of it is rounded to 0. So far a scaler takes care of that.",
            look=("grad_norm",),
        ),
        Predict(
            lambda scene: (
                "The plot has the gradient norm, the length of all gradients together: "
                f"{number_words(scene.run.last and scene.run.last.grad_norm)} now. The scaler is "
                "going to be switched off, backward stays in fp16. What will the norm be then?"
            ),
            choices=("As it is now: small, but right", "Exactly 0", "inf or NaN"),
            look=("grad_norm",),
        ),
        Wait(
            "The scaler is off. Look at the gradient norm.",
            name="off",
            steps=STILL_STEPS,
            dtype="float16",
            scaler="off",
            do=((SCALER, "off"),),
            look=("grad_norm", "loss"),
        ),
        Point(
            zero_words,
            holds=all_zero,
            answer=lambda scene: "b",
            dtype="float16",
            scaler="off",
            look=("grad_norm", "loss"),
            otherwise="The gradient norm is not 0 in this run: these gradients are large enough.",
        ),
        Press(
            "Now the same run with the scaler on. Press s: off becomes dynamic.",
            keys="s",
            again=True,
            name="on",
            until=lambda scene: scene.scaler == "dynamic",
            look=("grad_norm", "loss"),
        ),
        Wait(
            "The next step is looked at closely: where do all its gradients lie?",
            name="range",
            do=((EXPLAIN, None),),
            retry=50,
            until=lambda scene: scene.spread is not None and scene.spread.usual > 0,
            dtype="float16",
            scaler="dynamic",
            tab="range",
        ),
        Point(
            range_words,
            holds=saved,
            dtype="float16",
            scaler="dynamic",
            tab="range",
            otherwise="At this scale the scaler does not save these gradients.",
        ),
        Wait(
            "Does the net learn now? Look at the loss: every 200 steps the task changes, and the "
            "loss has to fall again.",
            name="learning",
            until=learned,
            within=1000,
            dtype="float16",
            scaler="dynamic",
            look=("loss", "grad_norm"),
            otherwise="The loss has not fallen.",
        ),
        Point(
            norm_words,
            holds=lambda scene: learned(scene) and all(map(math.isfinite, norms(scene)[-10:])),
            look=("loss", "grad_norm"),
            otherwise="The loss has not fallen.",
        ),
        Say(
            "Remember: underflow makes no error. Look for gradients that are exactly 0 (Tensors "
            "tab) and for what 'becomes 0' (Range tab).\n\nTry it: press s until the scaler is "
            "off, then d: bf16 reaches as far down as fp32 and learns without a scaler.",
            look=("loss", "grad_norm"),
        ),
    ),
)
