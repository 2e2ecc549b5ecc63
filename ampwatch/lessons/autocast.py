"""What autocast changes: which operations of one forward pass compute in which dtype."""

from __future__ import annotations

from ampwatch.controls import EXPLAIN
from ampwatch.formats import SHORT
from ampwatch.lessons.parts import Lesson, Point, Predict, Press, Say, Table, Wait
from ampwatch.lessons.scene import Scene
from ampwatch.record import Operation

PRODUCTS = ("linear", "matmul", "bmm", "addmm", "conv2d", "scaled_dot_product_attention")
"""Products of matrices: in the lower dtype on a CPU and on CUDA alike."""
LOSSES = ("cross_entropy", "nll_loss", "mse_loss")
"""In float32 on a CPU and on CUDA alike."""
NAMES = {"scaled_dot_product_attention": "attention"}
CUDA_FP32 = ("softmax", "layer_norm", "sum", "exp", "log", "pow")
"""On CUDA's float32 list and not on the CPU's, where they follow their input."""


def operations(scene: Scene) -> tuple[Operation, ...]:
    return () if scene.anatomy is None else scene.anatomy.operations


def taken_apart(scene: Scene) -> bool:
    return bool(operations(scene))


def those(scene: Scene, names: tuple[str, ...]) -> list[Operation]:
    return [each for each in operations(scene) if each.name in names]


def short(*dtypes: str | None) -> str:
    """Each dtype once, in the order in which they came."""
    named = dict.fromkeys(SHORT.get(each, each) for each in dtypes if each is not None)
    return "/".join(named) or "–"


def table(scene: Scene) -> Table | None:
    """Each kind of operation with the dtypes that it got."""
    anatomy = scene.anatomy
    if anatomy is None:
        return None
    kinds: dict[str, list[Operation]] = {}
    for each in anatomy.operations:
        kinds.setdefault(each.name, []).append(each)
    rows: list[tuple[str, ...]] = []
    marked = set()
    for name, group in kinds.items():
        if name in PRODUCTS:
            marked.add(len(rows))
        rows.append(
            (
                NAMES.get(name, name),
                str(len(group)),
                short(*(dtype for each in group for dtype in each.inputs)),
                short(*(dtype for each in group for dtype in each.weights)),
                short(*(each.output for each in group)),
                short(*(each.gradient for each in group)),
            )
        )
    return Table(
        f"The forward pass of step {anatomy.step}",
        ("operation", "times", "inputs", "weights", "output", "its gradient"),
        tuple(rows),
        frozenset(marked),
    )


def products_low(scene: Scene) -> bool:
    """Every matrix product gave fp16 and got a gradient in fp16, from weights that are fp32."""
    found = those(scene, PRODUCTS)
    weights = {dtype for each in found for dtype in each.weights}
    made = {dtype for each in found for dtype in (each.output, each.gradient)}
    return bool(found) and weights == {"float32"} and made == {"float16"}


def product_words(scene: Scene) -> str:
    found = those(scene, PRODUCTS)
    anatomy = scene.anatomy
    assert anatomy is not None
    return (
        f"All {len(found)} matrix products (▶) gave fp16; their weights are fp32. Autocast casts "
        "both inputs for the product alone and leaves the weights as they are.\n\nSo the gradient "
        "that comes back to each product is fp16 as well, while weight gradients are "
        f"{short(*anatomy.gradient_dtypes)}."
    )


def product_answer(scene: Scene) -> str:
    outputs = {each.output for each in those(scene, PRODUCTS)}
    if outputs == {"float32"}:
        return "a"
    return "b" if outputs == {"float16"} else "c"


def losses_high(scene: Scene) -> bool:
    found = those(scene, LOSSES)
    return bool(found) and {each.output for each in found} == {"float32"}


def loss_words(scene: Scene) -> str:
    names = short(*(each.name for each in those(scene, LOSSES)))
    fp32 = ", ".join(CUDA_FP32)
    here = "a CPU" if scene.device.startswith("cpu") else scene.device
    return (
        f"The loss, {names}, was computed in fp32, from fp16 inputs: it adds up many numbers, and "
        f"that takes digits. This run is on {here}. The lists differ: CUDA computes {fp32} in "
        "fp32 too; on a CPU these follow their input. The rest follows its inputs on both: fp16 "
        "plus fp32 is fp32."
    )


def names(scene: Scene) -> list[str]:
    return [each.name for each in operations(scene)]


def all_high(scene: Scene) -> bool:
    """The operations are those that were seen under autocast, and each gave fp32."""
    anatomy = scene.anatomy
    return (
        anatomy is not None
        and anatomy.dtype == "float32"
        and {each.output for each in anatomy.operations} == {"float32"}
        and names(scene) == scene.kept["lowered"]
    )


LESSON = Lesson(
    id="autocast",
    number=1,
    title="What autocast changes",
    goal="Matrix products compute in 16 bits; losses and weights stay in fp32.",
    demo="chargpt",
    args=("--steps", "1000000"),
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html, Autocast Op Reference",
        "aten/src/ATen/autocast_mode.h: AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32 (CUDA)",
        "aten/src/ATen/autocast_mode.cpp: TORCH_LIBRARY_IMPL(aten, AutocastCPU)",
    ),
    parts=(
        Say(
            "A small transformer trains under torch.autocast(float16). Autocast decides for each "
            "operation by itself in which dtype it computes.\n\nThe lesson takes one step apart "
            "and shows every operation of its forward pass.",
        ),
        Predict(
            "The weights of a linear layer are fp32, and so is its input. Under "
            "autocast(float16), in which dtype is its output?",
            choices=("fp32, as its weights and its input", "fp16", "It depends on the numbers"),
        ),
        Wait(
            "The next step is taken apart.",
            name="apart",
            do=((EXPLAIN, None),),
            until=taken_apart,
            within=50,
            dtype="float16",
            otherwise="No operation was recorded.",
        ),
        Point(
            product_words,
            holds=products_low,
            name="lowered",
            keep=names,
            answer=product_answer,
            table=table,
            otherwise="These products did not compute in fp16.",
        ),
        Point(
            loss_words,
            holds=losses_high,
            table=table,
            otherwise="The loss was not computed in fp32.",
        ),
        Press(
            "Now without autocast: press d until the line at the top says float32. bfloat16 comes "
            "first.",
            keys="d",
            again=True,
            until=lambda scene: scene.dtype == "float32",
        ),
        Wait(
            "The next step is taken apart.",
            name="plain",
            do=((EXPLAIN, None),),
            until=taken_apart,
            within=50,
            dtype="float32",
            otherwise="No operation was recorded.",
        ),
        Point(
            lambda scene: (
                f"The same {len(operations(scene))} operations, all in fp32: this is what your "
                "code says without autocast. Autocast changed no line of the model, only the "
                "dtype inside some operations.\n\nWhat it buys: on a GPU, 16-bit matrix products "
                "are several times faster, and what they keep for backward takes half the memory."
            ),
            holds=all_high,
            table=table,
            otherwise="Some operation gave another dtype than fp32, or it is another model.",
        ),
        Say(
            "Remember: 16 bits for products, fp32 for weights, losses and the optimizer. What "
            "fp16 can hold on the way back is the subject of the next lessons.\n\nTry it: press e "
            "to go through any step yourself.",
        ),
    ),
)
