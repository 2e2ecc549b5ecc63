"""bfloat16: the scaler sits idle; and the weight update that rounds away."""

from __future__ import annotations

import math

from ampwatch.controls import EXPLAIN
from ampwatch.lessons.parts import Lesson, Point, Predict, Press, Say, Table, Wait
from ampwatch.lessons.scene import Scene
from ampwatch.record import Followed
from ampwatch.words import count_words, number_words, scale_words, share_words

TENSOR = "bf16.0.weight"
"""A weight that the demo keeps in bf16."""
FRACTION_BITS = {"bf16": 7, "fp16": 10, "fp32": 23}
IDLE_STEPS = 120
STILL = 0.5
"""More than half of the weights: said of the copy, not of some weights in it."""
BEHIND = 1.5


def idle(scene: Scene) -> bool:
    """No step was skipped, and the scale did nothing but grow."""
    return (
        not scene.skips
        and scene.modes == {("bfloat16", "dynamic")}
        and bool(scene.moves)
        and all(move.grew for move in scene.moves)
    )


def idle_words(scene: Scene) -> str:
    moves = scene.moves
    return (
        f"{count_words(scene.steps, 'step')} in bf16: none was skipped, and the scale doubled "
        f"{count_words(len(moves), 'time')}, from {scale_words(moves[0].before)} to "
        f"{scale_words(moves[-1].after)}.\n\nbf16 reaches from 1e-38 to 3e38, as fp32 does: at "
        "these sizes nothing becomes 0 and nothing overflows, so there is nothing for the scaler "
        "to do. It idles, and can be left out."
    )


def spacing(value: float) -> float:
    """How far apart bf16 numbers are at a value."""
    return float(2.0 ** (math.frexp(value)[1] - 1 - FRACTION_BITS["bf16"]))


def followed(scene: Scene) -> Followed | None:
    anatomy = scene.anatomy
    if anatomy is None or anatomy.stepped is False:
        return None
    each = anatomy.followed
    return each if each is not None and each.name == TENSOR else None


def kept(each: Followed, rate: float) -> list[int]:
    """Which of the values have a gradient and did not move, where what Adam moves is too little."""
    return [
        which
        for which in range(len(each.index))
        if each.unscaled[which]
        and each.before[which] == each.after[which]
        and rate < spacing(each.before[which]) / 2
    ]


def kept_now(scene: Scene) -> list[int]:
    each, anatomy = followed(scene), scene.anatomy
    if each is None or anatomy is None or not anatomy.lr or each.dtype != "bfloat16":
        return []
    return kept(each, anatomy.lr)


def rounded_away(scene: Scene) -> bool:
    return bool(kept_now(scene))


def table(scene: Scene) -> Table | None:
    """Weights before and after the step, and how far away the next bf16 number is."""
    each = followed(scene)
    if each is None or scene.anatomy is None:
        return None
    rows = tuple(
        (
            str(list(each.place(which))),
            number_words(each.unscaled[which]),
            f"{each.before[which]:.9g}",
            f"{each.after[which]:.9g}",
            number_words(spacing(each.before[which])),
        )
        for which in range(len(each.index))
    )
    head = ("weight", "gradient", "before", "after", "next number")
    marked = frozenset(kept_now(scene))
    return Table(f"{each.name}, kept in bf16, in step {scene.anatomy.step}", head, rows, marked)


def kept_words(scene: Scene) -> str:
    each, anatomy = followed(scene), scene.anatomy
    assert each is not None
    assert anatomy is not None
    which = kept_now(scene)[0]
    return (
        f"The optimizer stepped: Adam moves a weight by about {number_words(anatomy.lr)}, its "
        f"learning rate. The weight {number_words(each.before[which])} has a gradient of "
        f"{number_words(each.unscaled[which])} and did not move: the next bf16 number is "
        f"{number_words(spacing(each.before[which]))} away, and less than half of that rounds back."
    )


def still_share(scene: Scene, name: str) -> float | None:
    return scene.middle(f"metrics.{name}", 20)


def losses(scene: Scene) -> tuple[float | None, float | None]:
    """Of the copy with bf16 weights, and of the one with fp32 weights."""
    return scene.middle("loss", 20), scene.middle("loss:Adam 2", 20)


def falls_behind(scene: Scene) -> bool:
    bf16, fp32 = losses(scene)
    still = still_share(scene, "still")
    return bool(bf16 and fp32 and still and bf16 > BEHIND * fp32 and still > STILL)


def behind_words(scene: Scene) -> str:
    bf16, fp32 = losses(scene)
    return (
        f"In each step {share_words(still_share(scene, 'still') or 0, 1)} of the bf16 weights stay "
        f"as they are; of the fp32 weights {share_words(still_share(scene, 'still_fp32') or 0, 1)}."
        f" The losses are {number_words(bf16)} and {number_words(fp32)}, on the same batches.\n\n"
        "So mixed precision keeps the weights in fp32 and computes in 16 bits. Those who do keep "
        "weights in bf16 use stochastic rounding, or carry the rest along (Kahan summation)."
    )


LESSON = Lesson(
    id="bfloat16",
    number=6,
    title="bfloat16 and what it costs",
    goal="bf16 needs no scaler, but has few digits: weights stay in fp32.",
    demo="rounding",
    args=("--steps", "1000000"),
    sources=(
        "torch.finfo(torch.bfloat16): eps 2^-7, max 3.39e38, smallest_normal 1.18e-38",
        "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019",
        "Zamirai et al., Revisiting BFloat16 Training, 2020: stochastic rounding and Kahan sums",
    ),
    parts=(
        Say(
            "Two copies of one net see the same batches and compute in the same format, fp16 at "
            "first. One copy keeps its weights in fp32, as autocast means it, the other in bf16. "
            "The loss plot has both, and its title both losses: first bf16, then fp32.\n\n"
            "First the range: what does the scaler do in bf16?",
            look=("loss", "scale"),
        ),
        Predict(
            "You are going to switch to bf16 and leave the scaler on. What will the scale do?",
            choices=(
                "The same saw-tooth as in fp16",
                "Grow and grow, without a skipped step",
                "Fall, since bf16 has fewer digits",
            ),
            look=("scale",),
        ),
        Press(
            "Press d: float16 becomes bfloat16.",
            keys="d",
            until=lambda scene: scene.dtype == "bfloat16",
            scaler="dynamic",
            look=("scale",),
        ),
        Wait(
            f"Look at the scale for {IDLE_STEPS} steps.",
            name="bf16",
            steps=IDLE_STEPS,
            dtype="bfloat16",
            scaler="dynamic",
            look=("scale",),
        ),
        Point(
            idle_words,
            holds=idle,
            answer=lambda scene: "b",
            dtype="bfloat16",
            scaler="dynamic",
            look=("scale",),
            otherwise="A step was skipped, or the scale was moved by hand.",
        ),
        Predict(
            "Now the price. bf16 has 7 bits of fraction, fp16 has 10, fp32 has 23: next to 0.1 the "
            "bf16 numbers are 0.0005 apart. A bf16 weight of 0.1 is to move by 0.0002. What "
            "happens?",
            choices=(
                "It becomes 0.1002",
                "It stays where it is, to the last bit",
                "It moves by 0.0005",
            ),
            look=("loss",),
        ),
        Wait(
            "The next step of the copy with bf16 weights is taken apart.",
            do=((EXPLAIN, TENSOR),),
            until=rounded_away,
            within=200,
            retry=10,
            look=("loss",),
            otherwise="No weight of that copy was found that did not move.",
        ),
        Point(
            kept_words,
            holds=rounded_away,
            answer=lambda scene: "b",
            table=table,
            otherwise="All of the weights that were looked at moved.",
        ),
        Wait(
            "What becomes of a net most of whose weights do not move?",
            until=falls_behind,
            within=600,
            look=("loss",),
            otherwise="The copy with bf16 weights is not behind.",
        ),
        Point(
            behind_words,
            holds=falls_behind,
            look=("loss",),
            otherwise="The copy with bf16 weights is not behind.",
        ),
    ),
)
