"""Growth and backoff: why the scale is a saw-tooth, and what a good rhythm looks like."""

from __future__ import annotations

from ampwatch.controls import PAUSE, SPEED
from ampwatch.lessons.parts import Lesson, Point, Predict, Say, Wait
from ampwatch.lessons.scene import Move, Scene
from ampwatch.words import count_words, scale_words, share_words

DEFAULT_INTERVAL = 2000
"""growth_interval of torch.amp.GradScaler."""
TEETH = 3
READING_SPEED = 4.0
"""Steps a second: the limit should not be met before it was asked about."""


def interval(scene: Scene) -> int:
    info = scene.run.info
    known = info.scaler.growth_interval if info is not None and info.scaler is not None else None
    return known or DEFAULT_INTERVAL


def grown(scene: Scene) -> list[Move]:
    return [move for move in scene.moves if move.grew]


def fallen(scene: Scene) -> list[Move]:
    return [move for move in scene.moves if move.fell]


def doubled(scene: Scene) -> bool:
    """The scale doubled after as many clean steps as the interval has."""
    moves = grown(scene)
    if not moves or moves[0].after != 2 * moves[0].before:
        return False
    before = scene.since_step(max(moves[0].step - interval(scene), 0)).skips
    return not any(step < moves[0].step for step in before)


def growth_words(scene: Scene) -> str:
    move = grown(scene)[0]
    return (
        f"At step {move.step} the scale doubled, from {scale_words(move.before)} to "
        f"{scale_words(move.after)}: the {interval(scene)} steps before it were clean.\n\n"
        "The scaler does not know how much room is left above. Doubling is how it finds out: "
        "a larger scale saves smaller gradients from becoming 0."
    )


def halved(scene: Scene) -> bool:
    moves = fallen(scene)
    return bool(moves) and moves[0].after == moves[0].before / 2


def fall_words(scene: Scene) -> str:
    move = fallen(scene)[0]
    return (
        f"Step {move.step - 1} had inf or NaN in its gradients. It was skipped, and the scale went "
        f"from {scale_words(move.before)} to {scale_words(move.after)}. The count of clean steps "
        f"began again at 0.\n\nOne batch was lost. That is the price of looking for the limit."
    )


def settled(scene: Scene) -> bool:
    return len(fallen(scene)) >= TEETH and len(grown(scene)) >= 1


def rhythm(scene: Scene) -> float:
    """Steps from one skip to the next."""
    skips = scene.skips
    return (skips[-1] - skips[0]) / (len(skips) - 1)


def balanced(scene: Scene) -> bool:
    """Skips come about once an interval: never one after the other, and not much rarer."""
    return settled(scene) and interval(scene) / 4 <= rhythm(scene) <= 10 * interval(scene)


def rhythm_words(scene: Scene) -> str:
    skips = scene.skips
    return (
        f"{len(skips)} of {count_words(scene.steps, 'step')} were skipped "
        f"({share_words(len(skips), scene.steps)}), one in {rhythm(scene):.0f}; the scale doubled "
        f"{len(grown(scene))} times and fell {len(fallen(scene))} times.\n\n"
        "Where gradients keep their size, each fall makes up for one growth: so the rhythm is "
        f"about one skip in {interval(scene)} steps, the growth interval, or rarer. With torch's "
        f"default of {DEFAULT_INTERVAL} that is 0.05 %."
    )


LESSON = Lesson(
    id="growth",
    number=4,
    title="Growth and backoff",
    goal="A saw-tooth with rare skips is how a healthy scaler looks.",
    demo="linear",
    args=("--steps", "1000000"),
    sources=(
        "torch/amp/grad_scaler.py: growth_factor 2.0, backoff_factor 0.5, growth_interval 2000",
        "torch/_amp_update_scale_ (aten/src/ATen/native/cuda/AmpKernels.cu): the growth tracker",
    ),
    parts=(
        Say(
            lambda scene: (
                "GradScaler has two rules. After growth_interval steps without inf or NaN it "
                "doubles the scale. After a step with inf or NaN it skips that step and halves "
                f"the scale.\n\nHere the interval is {interval(scene)} steps, so that you can "
                f"watch it; torch's default is {DEFAULT_INTERVAL}. The status line counts down: "
                "'grows in'."
            ),
            do=((SPEED, READING_SPEED),),
            look=("scale",),
        ),
        Wait(
            "Watch the scale. It grows by itself as soon as enough steps were clean.",
            name="growth",
            do=((SPEED, 40.0),),
            until=lambda scene: bool(grown(scene)),
            dtype="float16",
            scaler="dynamic",
            look=("scale",),
            otherwise="Every step that is skipped begins the count anew.",
        ),
        Point(
            growth_words,
            do=((PAUSE, True),),
            holds=doubled,
            look=("scale",),
            otherwise="The scale was moved by hand, or a step was skipped on the way.",
        ),
        Predict(
            "The run is paused. It is going to double again and again: what ends the climb?",
            choices=(
                "A largest scale that is set in GradScaler",
                "A step whose gradients overflow: it is skipped, the scale halves",
                "Nothing: the scale is divided out again, so it may be any size",
            ),
            look=("scale",),
        ),
        Wait(
            "Watch the scale climb until something happens.",
            name="fall",
            do=((PAUSE, False),),
            until=lambda scene: bool(fallen(scene)),
            within=1000,
            dtype="float16",
            scaler="dynamic",
            look=("scale",),
            otherwise="No step was skipped: the gradients still fit.",
        ),
        Point(
            fall_words,
            holds=halved,
            answer=lambda scene: "b",
            look=("scale", "nonfinite"),
            otherwise="The scale did not halve after the skipped step.",
        ),
        Wait(
            f"Now the whole picture: {TEETH} skips, however long that takes. The training is "
            "faster meanwhile.",
            name="teeth",
            do=((SPEED, 120.0),),
            until=settled,
            within=3000,
            dtype="float16",
            scaler="dynamic",
            look=("scale", "loss"),
            otherwise="Fewer steps were skipped than that.",
        ),
        Point(
            rhythm_words,
            do=((SPEED, 20.0),),
            holds=lambda scene: balanced(scene.since("teeth")),
            look=("scale", "loss"),
            otherwise="Skips come much more often, or much more rarely, than once an interval.",
        ),
        Say(
            "Not healthy: a scale that falls and falls (lesson 8), skips in every few steps, or a "
            "scale that has come down to 1 and below. A long flat line is fine: the interval is "
            "long.\n\nTry it: press ] a few times to force a skip, and watch the climb begin anew.",
            look=("scale",),
        ),
    ),
)
