"""Overflow: one skipped step, taken apart."""

from __future__ import annotations

import math

from ampwatch.controls import EXPLAIN, PAUSE, TARGET_GAIN
from ampwatch.formats import FLOAT16
from ampwatch.lessons.parts import Lesson, Point, Predict, Press, Say, Table, Wait
from ampwatch.lessons.scene import Scene
from ampwatch.lessons.targets import keys_to_targets
from ampwatch.record import StepAnatomy
from ampwatch.words import count_words, number_words, scale_words

TENSOR = "0.weight"
"""The weight that is followed: of the first layer, where inf and NaN arrive last."""
GAIN = 100
WARM_UP = 60


def apart(scene: Scene) -> StepAnatomy | None:
    """The step that was taken apart with the large targets."""
    return scene.since("step").anatomy


def known(scene: Scene) -> StepAnatomy:
    """The same, where it has been looked at already."""
    anatomy = apart(scene)
    assert anatomy is not None
    return anatomy


def overflowed(scene: Scene) -> bool:
    """The step was skipped because of what the scaler found in it, at the large targets."""
    anatomy, last = apart(scene), scene.since("step").last
    return (
        anatomy is not None
        and last is not None
        and last.target_gain == GAIN
        and anatomy.step in scene.run.skipped_steps
        and anatomy.nonfinite_values > 0
    )


to_gain = keys_to_targets(GAIN)


def not_overflowed(scene: Scene) -> str:
    gain = scene.asked(TARGET_GAIN)
    if gain != GAIN:
        return f"The targets are {gain:g} times as large, and not {GAIN} times."
    return "The gradients fit at this scale. Press r to begin the lesson again."


def skip_words(scene: Scene) -> str:
    anatomy = known(scene)
    after = scale_words(anatomy.scale_after)
    return (
        f"Step {anatomy.step} was skipped (▼), and the scale was halved, from "
        f"{scale_words(anatomy.scale)} to {after}. The plot and the line at the top have the scale "
        f"that a step was taken with: {after} from the next one on.\n\n"
        + "The run is still paused. " * scene.paused
        + "What happened in this step, one thing after the other?"
    )


def halved(scene: Scene) -> bool:
    anatomy = apart(scene)
    return (
        overflowed(scene)
        and anatomy is not None
        and anatomy.scale is not None
        and anatomy.scale_after == anatomy.scale / 2
    )


def scaled_fine(scene: Scene) -> bool:
    """The loss and the scaled loss are finite, and the one is the other times the scale."""
    anatomy = apart(scene)
    if anatomy is None or None in (anatomy.loss, anatomy.scaled_loss, anatomy.scale):
        return False
    loss, scaled, scale = anatomy.loss, anatomy.scaled_loss, anatomy.scale
    assert loss is not None
    assert scaled is not None
    assert scale is not None
    return math.isfinite(scaled) and math.isclose(loss * scale, scaled, rel_tol=1e-5)


def loss_words(scene: Scene) -> str:
    anatomy = known(scene)
    return (
        f"1. The loss is {number_words(anatomy.loss)}, in {anatomy.loss_dtype}. The scaler "
        f"multiplies it by the scale, {scale_words(anatomy.scale)}: "
        f"{number_words(anatomy.scaled_loss)}.\n\nThat is beyond {FLOAT16.largest:.0f}, and does "
        "no harm: this number is float32. Backward starts from it."
        if (anatomy.scaled_loss or 0) > FLOAT16.largest
        else f"1. The loss is {number_words(anatomy.loss)}, in {anatomy.loss_dtype}; times the "
        f"scale, {scale_words(anatomy.scale)}, it is {number_words(anatomy.scaled_loss)}. "
        "Backward starts from it."
    )


def inf_in_backward(scene: Scene) -> bool:
    anatomy = apart(scene)
    place = None if anatomy is None else anatomy.infinite_at()
    return place is not None and place.gradient == "float16"


def inf_words(scene: Scene) -> str:
    anatomy = known(scene)
    place = anatomy.infinite_at()
    assert place is not None
    where = f"{place.name} (module {place.module})" if place.module else place.name
    return (
        f"2. Backward: inf first comes up in the gradient of the output of {where}: "
        f"{place.gradient_nonfinite} of {place.size} values, in fp16, whose largest number is "
        f"{FLOAT16.largest:.0f}. From there inf and NaN spread to the layers before.\n\nIn the "
        f"end {anatomy.nonfinite_tensors} of {anatomy.tensors} weight gradients hold inf or NaN; "
        f"the first of them is {anatomy.origin}."
    )


def untouched(scene: Scene) -> bool:
    """The scaler found inf, did not call the optimizer, and no followed weight moved."""
    anatomy = apart(scene)
    return (
        anatomy is not None
        and anatomy.found_inf is not None
        and anatomy.found_inf > 0
        and anatomy.stepped is False
        and anatomy.followed is not None
        and len(anatomy.followed.before) > 0
        and anatomy.followed.before == anatomy.followed.after
    )


def check_words(scene: Scene) -> str:
    anatomy = known(scene)
    assert anatomy.followed is not None
    count = len(anatomy.followed.before)
    those = "The weight in the table is" if count == 1 else f"The {count} weights in the table are"
    return (
        f"3. scaler.step() divides the gradients by the scale and looks for inf and NaN: found_inf "
        f"is {number_words(anatomy.found_inf)}. So it does not call optimizer.step(). {those} the "
        "same before and after, to the last bit."
    )


def followed(scene: Scene) -> Table | None:
    """Some weights of one tensor on their way through the step."""
    anatomy = apart(scene)
    if anatomy is None or anatomy.followed is None:
        return None
    each = anatomy.followed
    rows = tuple(
        (
            str(list(each.place(which))),
            number_words(each.scaled[which]),
            number_words(each.unscaled[which]),
            f"{each.before[which]:.9g}",
            f"{each.after[which]:.9g}",
        )
        for which in range(len(each.index))
    )
    head = ("weight", "gradient × scale", "unscaled", "before", "after")
    return Table(f"{each.name} in step {anatomy.step}", head, rows)


def answer(scene: Scene) -> str:
    anatomy = apart(scene)
    return "b" if anatomy is not None and anatomy.stepped is False else "a"


def recovered(scene: Scene) -> bool:
    last = scene.last
    return last is not None and last.skipped is False and last.target_gain == GAIN


def recovery_words(scene: Scene) -> str:
    anatomy, last = known(scene), scene.last
    skips = [step for step in scene.run.skipped_steps if anatomy.step <= step]
    return (
        f"{count_words(len(skips), 'step')} in all were skipped, one after the other; each halved "
        f"the scale, from {scale_words(anatomy.scale)} to {scale_words(scene.scale)}. Now the "
        "gradients fit, and steps are taken again"
        + (f": the loss is {number_words(last.loss)}." if last is not None else ".")
    )


LESSON = Lesson(
    id="overflow",
    number=3,
    title="Overflow and the skipped step",
    goal="An overflow costs one step and halves the scale; no weight is harmed.",
    demo="linear",
    args=("--steps", "1000000"),
    sources=(
        "torch/amp/grad_scaler.py: scale, unscale_, step, update, in this order",
        "torch.finfo(torch.float16).max",
    ),
    parts=(
        Wait(
            f"A small net trains in fp16. Let it take {WARM_UP} steps, and look at the scale.",
            steps=WARM_UP,
            dtype="float16",
            scaler="dynamic",
            look=("loss", "scale"),
        ),
        Predict(
            "The run is paused. You are going to make the targets a hundred times larger, and so "
            f"the gradients; the largest number of fp16 is {FLOAT16.largest:.0f}. What happens to "
            "the next step?",
            choices=(
                f"It is taken, with gradients cut off at {FLOAT16.largest:.0f}",
                "It is skipped: no weight changes, and the scale is halved",
                "The training stops with an error",
            ),
            do=((PAUSE, True),),
            look=("loss", "scale"),
        ),
        Press(
            "Press t twice: each press makes the targets ten times larger.",
            keys=to_gain,
            until=lambda scene: scene.asked(TARGET_GAIN) == GAIN,
            look=("loss", "scale"),
        ),
        Press(
            "Now one single step: press the full stop. It is taken apart on its way.",
            keys=lambda scene: f"{to_gain(scene)} .",
            name="step",
            do=((EXPLAIN, TENSOR),),
            retry=1,
            until=overflowed,
            within=0,
            dtype="float16",
            scaler="dynamic",
            look=("loss", "scale"),
            otherwise=not_overflowed,
        ),
        Point(
            skip_words,
            holds=halved,
            answer=answer,
            step=lambda scene: known(scene).step,
            look=("scale", "nonfinite"),
            otherwise="The scale was not halved.",
        ),
        Point(
            loss_words,
            holds=scaled_fine,
            look=("loss", "scale"),
            otherwise="The scaled loss is not finite: then the forward pass overflowed.",
        ),
        Point(
            inf_words,
            holds=inf_in_backward,
            look=("nonfinite", "grad_norm"),
            otherwise="No inf came up in an fp16 gradient of this step.",
        ),
        Point(
            check_words,
            holds=untouched,
            table=followed,
            otherwise="The optimizer was called, or a weight changed.",
        ),
        Point(
            lambda scene: (
                f"4. scaler.update() halves the scale, {scale_words(known(scene).scale)} to "
                f"{scale_words(known(scene).scale_after)}, and sets the count of clean steps to "
                f"{known(scene).growth_tracker_after}. That is all: the batch is lost, and "
                "nothing else."
            ),
            holds=lambda scene: halved(scene) and known(scene).growth_tracker_after == 0,
            look=("scale",),
            otherwise="The count of clean steps was not set back.",
        ),
        Press(
            "Is one halving enough? Press space to let the run go on.",
            keys="space",
            until=recovered,
            within=60,
            dtype="float16",
            scaler="dynamic",
            look=("scale", "loss"),
            otherwise="Every step is still skipped.",
        ),
        Point(
            recovery_words,
            holds=lambda scene: recovered(scene) and scene.scale is not None,
            look=("scale", "loss"),
        ),
        Say(
            "Remember the order: scale the loss, backward, unscale and check, step or skip, "
            "update. A skipped step now and then is how the scaler works, not an error.\n\n"
            "Try it: 0 sets the targets back; t once more; e goes through any step yourself.",
            look=("scale", "loss"),
        ),
    ),
)
