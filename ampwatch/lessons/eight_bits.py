"""Eight bits: what fp8 e4m3 and e5m2 would keep of the gradients of a small transformer."""

from __future__ import annotations

from ampwatch.controls import EXPLAIN
from ampwatch.formats import BFLOAT16, E4M3, E5M2, FLOAT16, Format
from ampwatch.lessons.parts import Lesson, Point, Predict, Say, Table, Wait
from ampwatch.lessons.scene import Scene
from ampwatch.run.ranges import fit, spread_of
from ampwatch.words import number_words, power_words, share_words

SHOWN = (FLOAT16, BFLOAT16, E5M2, E4M3)
FRACTION_BITS = {E4M3.name: 3, E5M2.name: 2}
LITTLE, MUCH = 0.1, 0.5
"""What the answers call a tenth and a half."""


def lost(scene: Scene, form: Format, scale: float | None) -> float | None:
    """Which share of the gradients a format makes 0."""
    told = scene.fit(form, scale)
    return None if told is None else told.flushed


def best_scale(scene: Scene, form: Format) -> float | None:
    """The largest power of two at which no parameter gradient overflows."""
    told = scene.fit(form, None)
    return None if told is None or told.highest is None else 2.0 ** min(told.highest, 127)


def own_scales(scene: Scene, form: Format) -> tuple[float, float] | None:
    """What becomes 0 and what loses bits when each tensor has the best scale of its own."""
    stats = scene.detail
    if stats is None:
        return None
    zeros = partly = values = 0.0
    for name in stats.name:
        spread = spread_of(stats, name)
        if spread is None or not spread.usual:
            continue
        highest = fit(spread, form, None).highest
        if highest is None:
            return None
        told = fit(spread, form, 2.0 ** min(highest, 127))
        zeros += told.flushed * spread.usual
        partly += told.subnormal * spread.usual
        values += spread.usual
    return (zeros / values, partly / values) if values else None


def one_scale(scene: Scene, form: Format) -> tuple[float, float] | None:
    """The same when all of them have one scale, the best one."""
    scale = best_scale(scene, form)
    told = None if scale is None else scene.fit(form, scale)
    return None if told is None else (told.flushed, told.subnormal)


def measured(scene: Scene) -> bool:
    return all(best_scale(scene, form) is not None for form in SHOWN)


def unscaled_table(scene: Scene) -> Table | None:
    """All formats without a scale."""
    rows = []
    for form in SHOWN:
        told = scene.fit(form, None)
        if told is None:
            return None
        reach = f"2^{form.lowest} … {number_words(form.largest)}"
        rows.append(
            (form.name, reach, share_words(told.flushed, 1), share_words(told.subnormal, 1),
             share_words(told.overflowing, 1))
        )  # fmt: skip
    head = ("format", "from … to", "becomes 0", "loses bits", "overflows")
    return Table("These gradients without a scale", head, tuple(rows), frozenset({2, 3}))


def scaled_table(scene: Scene) -> Table | None:
    """Both fp8 formats with the best scale for all tensors, and with one for each."""
    rows = []
    for form in (E5M2, E4M3):
        scale, one, own = best_scale(scene, form), one_scale(scene, form), own_scales(scene, form)
        if scale is None or one is None or own is None:
            return None
        for kind, shares in ((f"{power_words(scale)} for all", one), ("one for each tensor", own)):
            rows.append((form.name, kind, *(share_words(share, 1) for share in shares)))
    head = ("format", "best scale", "becomes 0", "loses bits")
    return Table("These gradients with the best scales", head, tuple(rows), frozenset({2, 3}))


def share_answer(scene: Scene) -> str:
    share = lost(scene, E4M3, None)
    if share is None:
        return ""
    return "a" if share < LITTLE else "b" if share <= MUCH else "c"


def unscaled_words(scene: Scene) -> str:
    e4m3, e5m2 = lost(scene, E4M3, None) or 0, lost(scene, E5M2, None) or 0
    return (
        f"Without a scale e4m3 makes {share_words(e4m3, 1)} of these gradients 0, and e5m2 "
        f"{share_words(e5m2, 1)}. With one bit of exponent less, e4m3 begins at 2^{E4M3.lowest} "
        f"where e5m2 begins at 2^{E5M2.lowest}.\n\nSo gradients in fp8 need a scale."
    )


def e4m3_worse(scene: Scene) -> bool:
    e4m3, e5m2 = lost(scene, E4M3, None), lost(scene, E5M2, None)
    return measured(scene) and e4m3 is not None and e5m2 is not None and e4m3 > e5m2


def own_helps(scene: Scene) -> bool:
    """One scale for all costs bits even at its best, and a scale per tensor costs fewer."""
    one, own = one_scale(scene, E4M3), own_scales(scene, E4M3)
    return (
        one is not None
        and own is not None
        and own[0] <= one[0]
        and sum(own) < sum(one)
        and scaled_table(scene) is not None
    )


def own_words(scene: Scene) -> str:
    one, own = one_scale(scene, E4M3), own_scales(scene, E4M3)
    assert one is not None
    assert own is not None
    return (
        f"At its best scale e4m3 makes {share_words(one[0], 1)} of the gradients 0, and "
        f"{share_words(one[1], 1)} lose bits: some tensors have large gradients and some small "
        "ones, and one scale has to serve all. With a scale for each tensor it is "
        f"{share_words(own[0], 1)} and {share_words(own[1], 1)}.\n\nThat is how fp8 is used: each "
        "tensor has a scale, taken from the largest values it had."
    )


LESSON = Lesson(
    id="eight_bits",
    number=9,
    title="Eight bits",
    goal="fp8 needs a scale per tensor; e4m3 keeps digits, e5m2 reaches far.",
    demo="chargpt",
    args=("--steps", "1000000"),
    sources=(
        "torch.finfo(torch.float8_e4m3fn), torch.finfo(torch.float8_e5m2)",
        "Micikevicius et al., FP8 Formats for Deep Learning, 2022",
        "OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023",
    ),
    parts=(
        Say(
            "This transformer trains in fp16; torch.autocast has no fp8. But where its gradients "
            "lie tells what fp8 would make of them.\n\nTwo formats: e4m3 has 4 bits of exponent "
            f"and 3 of fraction, and ends at {E4M3.largest:.0f}. e5m2 has 5 and 2, and ends at "
            f"{E5M2.largest:.0f}. Between 1 and 2 the one has 8 numbers, the other 4.",
            tab="range",
        ),
        Predict(
            "Which share of this net's gradients would e4m3 make 0, if they had no scale?",
            choices=("Less than a tenth", "More, but not half of them", "More than half"),
            tab="range",
        ),
        Wait(
            "Some steps are looked at closely: where do all their gradients lie?",
            name="range",
            do=((EXPLAIN, None),),
            retry=10,
            steps=20,
            until=measured,
            dtype="float16",
            tab="range",
        ),
        Point(
            unscaled_words,
            holds=e4m3_worse,
            answer=share_answer,
            table=unscaled_table,
            otherwise="e4m3 would lose no more of these gradients than e5m2.",
        ),
        Point(
            own_words,
            holds=own_helps,
            table=scaled_table,
            otherwise="The gradients could not be told tensor by tensor.",
        ),
        Say(
            "And the digits: where it loses no bits, a cast to e4m3 is off by at most 1/16 of the "
            "value, one to e5m2 by 1/8. So the usual recipe takes e4m3 for weights and activations "
            "in the forward pass, and e5m2 for gradients; products add up in fp32, and weights "
            "stay in fp32 or bf16.",
            tab="range",
        ),
        Say(
            "Here you can look for yourself: the Range tab is open, f goes through fp16, bf16, "
            "e4m3 and e5m2, and [ and ] slide the lower band.\n\nThis was the last lesson. Your "
            "own loop next: ampwatch run train.py.",
            tab="range",
        ),
    ),
)
