"""An overflow in the forward pass: why the scaler halves without end, and what does help."""

from __future__ import annotations

import math

from ampwatch.controls import PAUSE, TARGET_GAIN
from ampwatch.formats import FLOAT16
from ampwatch.lessons.parts import Lesson, Point, Predict, Press, Say, Wait
from ampwatch.lessons.scene import Scene
from ampwatch.lessons.targets import keys_to_targets
from ampwatch.run.scale_levels import FATAL_SCALE
from ampwatch.words import count_words, number_words, power_words, scale_words

HALVINGS = 25
GAIN = 1000


def gone(scene: Scene) -> bool:
    """The loss of the latest step was inf or NaN, at the large gain."""
    last = scene.last
    return (
        last is not None
        and last.target_gain == GAIN
        and last.loss is not None
        and not math.isfinite(last.loss)
    )


def lost(scene: Scene) -> Scene:
    """The run since every loss has been inf or NaN."""
    points = scene.since("large").points("loss", scene.places["large"], scene.run.steps - 1)
    finite = [step for step, loss in points if math.isfinite(loss)]
    return scene.since_step(max(finite, default=scene.places["large"] - 1) + 1)


def helpless(scene: Scene) -> bool:
    """Step after step was skipped with a loss that is not finite, however small the scale."""
    stretch = lost(scene)
    fallen = [move for move in stretch.moves if move.fell]
    return (
        stretch.steps >= HALVINGS
        and len(stretch.skips) == stretch.steps
        and len(fallen) >= stretch.steps - 1
    )


def helpless_words(scene: Scene) -> str:
    stretch = lost(scene)
    return (
        f"In {count_words(stretch.steps, 'step')} the loss was inf or NaN: the loss itself, before "
        "the scale is multiplied in. All of them were skipped, and the scale fell from "
        f"{scale_words(scene.value('scale', stretch.began))} to {power_words(scene.scale or 0)}. "
        "inf times a small number is inf.\n\nThis is how you tell the two apart: overflow in "
        "backward leaves the loss finite and ends after a few halvings."
    )


def cause_words(scene: Scene) -> str:
    seen = scene.run.facts["forward-overflow"]
    operation, module, after = (seen.value(key) for key in ("op", "module", "after"))
    place = f"the operation {operation}" if operation else "an operation"
    place += f" of {module}" if module else f" after {after}" if after else ""
    largest = seen.value("largest")
    return (
        f"ampwatch looked through the forward pass: inf came up in {place}, in fp16"
        + (f"; the largest number that went in was {largest}" if largest else "")
        + f". A square is beyond {FLOAT16.largest:.0f} from 256 on.\n\nThe run is paused here. "
        "Three things help: a format with a larger range (bf16), inputs of a usual size "
        "(normalise them), or this one operation in fp32."
    )


def healed(scene: Scene) -> bool:
    last = scene.last
    return (
        last is not None
        and last.dtype == "bfloat16"
        and last.target_gain == GAIN
        and last.skipped is False
        and last.loss is not None
        and math.isfinite(last.loss)
    )


def not_healed(scene: Scene) -> str:
    scale = scene.run.final_scale()
    if scale is not None and scale <= FATAL_SCALE:
        return (
            "The scale fell so far that 1 / scale is inf in fp32: a step with it makes the weights "
            "NaN. Press r to begin the lesson again."
        )
    if scene.asked(TARGET_GAIN) != GAIN:
        return f"The signal is not {GAIN} times as large any more."
    return "Press d until the line at the top says bfloat16."


def healed_words(scene: Scene) -> str:
    last = scene.last
    assert last is not None
    return (
        f"Step {last.step} was taken in bf16, at the same input: its loss is "
        f"{number_words(last.loss)}, large but finite. bf16 reaches to 3.4e38, as fp32 does.\n\n"
        f"What remains is the scale: {power_words(last.scale or 0)}. It needs a growth interval "
        "for each doubling on its way back, and back in fp16 small gradients would become 0 "
        "until then."
    )


LESSON = Lesson(
    id="forward",
    number=8,
    title="When the scaler cannot help",
    goal="An inf of the forward pass is there before the scale is.",
    demo="forward",
    args=("--steps", "1000000"),
    sources=(
        "torch.finfo(torch.float16).max, torch.finfo(torch.bfloat16).max",
        "torch/amp/grad_scaler.py: scale() multiplies the loss, after the forward pass",
    ),
    parts=(
        Say(
            "This net learns the energy of a signal: a linear layer, and its output squared, in "
            f"fp16. The largest number of fp16 is {FLOAT16.largest:.0f}.\n\nWith t the signal "
            "comes in a smaller unit: its numbers are ten times larger, and their squares a "
            "hundred times.",
            look=("loss", "scale"),
        ),
        Predict(
            "The signal becomes a thousand times larger. The gradients are inf, so the scaler "
            "skips and halves. When are steps taken again?",
            choices=(
                "After one halving",
                "After ten to twenty halvings",
                "Never, however small the scale",
            ),
            look=("loss", "scale"),
        ),
        Press(
            "Press t three times: the signal a thousand times larger.",
            keys=keys_to_targets(GAIN),
            name="large",
            until=gone,
            dtype="float16",
            scaler="dynamic",
            look=("loss", "scale"),
            otherwise=(
                "The loss is finite. Is the signal a thousand times larger (see 'targets' at the "
                "top), and is the run in fp16?"
            ),
        ),
        Wait(
            f"Look at the scale for {HALVINGS} steps.",
            until=helpless,
            dtype="float16",
            scaler="dynamic",
            look=("scale", "loss"),
            otherwise="Some of the steps were taken, or had a finite loss.",
        ),
        Point(
            helpless_words,
            do=((PAUSE, True),),
            holds=helpless,
            answer=lambda scene: "c",
            dtype="float16",
            scaler="dynamic",
            look=("scale", "loss"),
            otherwise="Some of the steps were taken, or had a finite loss.",
        ),
        Point(
            cause_words,
            holds=lambda scene: scene.since("large").happened("forward-overflow"),
            look=("loss", "nonfinite"),
            otherwise="No operation of the forward pass was found to overflow.",
        ),
        Press(
            "Press d for bf16, and then space to let the run go on.",
            keys="d space",
            until=healed,
            within=HALVINGS,
            look=("loss", "scale"),
            otherwise=not_healed,
        ),
        Point(
            healed_words,
            holds=healed,
            look=("loss", "scale"),
            otherwise="No step with a finite loss was taken in bf16 at this size of the signal.",
        ),
        Say(
            "Remember: gaps marked ! in the loss mean the forward pass. No scaler, no clipping and "
            "no smaller learning rate cures it.\n\nTry it: d until float16 (inf again), then 0: "
            "the usual unit, finite again. That is what normalising does.",
            look=("loss", "scale"),
        ),
    ),
)
