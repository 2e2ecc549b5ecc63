"""What the lessons teach about formats, autocast and the scaler, asked of torch itself."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from ampwatch.formats import BFLOAT16, E4M3, E5M2, FLOAT16, FLOAT32
from ampwatch.lessons import LESSONS, autocast, bfloat16, eight_bits, growth
from ampwatch.lessons import clipping as clipping_lesson
from ampwatch.record import Followed
from ampwatch.run.scale_levels import FATAL_SCALE

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
A = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).abs() + 0.5
CLASSES = torch.tensor([0, 1, 2, 3])

PRODUCTS = {
    "linear": lambda: F.linear(A, A),
    "matmul": lambda: A @ A,
    "bmm": lambda: torch.bmm(A[None], A[None]),
    "addmm": lambda: torch.addmm(A, A, A),
    "conv2d": lambda: F.conv2d(A[None, None], A[None, None]),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(
        A[None], A[None], A[None]
    ),
}
LOSSES = {
    "cross_entropy": lambda: F.cross_entropy(A @ A, CLASSES),
    "nll_loss": lambda: F.nll_loss(A @ A, CLASSES),
    "mse_loss": lambda: F.mse_loss(A @ A, A),
}
ON_CUDA_FP32 = {
    "softmax": lambda: (A @ A).softmax(-1),
    "layer_norm": lambda: F.layer_norm(A @ A, (4,)),
    "sum": lambda: (A @ A).sum(),
    "exp": lambda: (A @ A).exp(),
    "log": lambda: (A @ A).log(),
    "pow": lambda: (A @ A).pow(2),
}


def words_of(lesson_id: str) -> str:
    """The file of a lesson, as a reader sees it."""
    module = {each.LESSON.id: each for each in (autocast, bfloat16, eight_bits, growth)}
    text = inspect.getsource(module[lesson_id])
    return " ".join(re.sub(r'"\s*\n\s*f?"', "", text).split())


# Autocast.


def test_the_lists_of_the_lesson_are_those_that_are_tried_here() -> None:
    assert set(autocast.PRODUCTS) == set(PRODUCTS)
    assert set(autocast.LOSSES) == set(LOSSES)
    assert set(autocast.CUDA_FP32) == set(ON_CUDA_FP32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", PRODUCTS)
def test_matrix_products_are_lowered_on_a_cpu(name: str, dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype):
        assert PRODUCTS[name]().dtype == dtype


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_computed_in_fp32_on_a_cpu(name: str) -> None:
    with torch.autocast("cpu", torch.float16):
        assert (A @ A).dtype == torch.float16
        assert LOSSES[name]().dtype == torch.float32


@pytest.mark.parametrize("name", ON_CUDA_FP32)
def test_what_cuda_computes_in_fp32_follows_its_input_on_a_cpu(name: str) -> None:
    with torch.autocast("cpu", torch.float16):
        assert ON_CUDA_FP32[name]().dtype == torch.float16


def listed(macro: str) -> set[str]:
    """The operations of a list in torch's own header, which is the one for CUDA."""
    text = HEADER.read_text()
    start = text.index(f"#define {macro}(_)")
    lines = text[start:].split("\n\n")[0]
    return set(re.findall(r"_\((\w+)", lines))


def test_the_lists_for_cuda_are_those_of_torchs_header() -> None:
    low = listed("AT_FORALL_LOWER_PRECISION_FP")
    high = listed("AT_FORALL_FP32") | listed("AT_FORALL_FP32_SET_OPT_DTYPE")
    assert {"linear", "matmul", "bmm", "addmm", "conv2d", "scaled_dot_product_attention"} <= low
    assert set(autocast.CUDA_FP32) <= high
    assert {"nll_loss", "mse_loss"} <= high  # cross_entropy is log_softmax and nll_loss
    assert not high & set(autocast.PRODUCTS)
    # So the square in lesson 8's demo is a product: "pow" would not overflow on CUDA.
    assert not {"mul", "multiply"} & (low | high)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_autocast_does_what_the_header_says() -> None:
    a = A.cuda()
    with torch.autocast("cuda", torch.float16):
        product = a @ a
        assert product.dtype == torch.float16
        assert F.linear(a, a).dtype == torch.float16
        for result in (
            product.softmax(-1),
            F.layer_norm(product, (4,)),
            product.sum(),
            product.exp(),
            product.abs().log(),
            product.pow(2),
            F.cross_entropy(product, CLASSES.cuda()),
            F.mse_loss(product, a),
        ):
            assert result.dtype == torch.float32


def test_autocast_leaves_the_weights_and_their_gradients_in_fp32() -> None:
    layer = torch.nn.Linear(4, 4)
    with torch.autocast("cpu", torch.float16):
        out = layer(A)
    seen: list[torch.dtype] = []
    out.register_hook(lambda gradient: seen.append(gradient.dtype))
    out.float().sum().backward()
    assert layer.weight.dtype == torch.float32
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    assert seen == [torch.float16]


def test_fp16_plus_fp32_is_fp32() -> None:
    with torch.autocast("cpu", torch.float16):
        assert ((A @ A) + A).dtype == torch.float32


# Formats.


@pytest.mark.parametrize("form", [FLOAT16, BFLOAT16, E4M3, E5M2, FLOAT32], ids=lambda f: f.name)
def test_limits_and_steps_are_those_of_torch(form: object) -> None:
    assert isinstance(form, type(FLOAT16))
    dtype = getattr(torch, form.dtype)
    info = torch.finfo(dtype)
    assert info.max == form.largest
    assert info.smallest_normal == 2.0**form.normal
    smallest = torch.tensor(2.0**form.lowest, dtype=torch.float64).to(dtype)
    half = torch.tensor(2.0 ** (form.lowest - 1), dtype=torch.float64).to(dtype)
    assert smallest.double() == 2.0**form.lowest
    assert half.double() == 0
    above = torch.tensor(1.01 * 2.0 ** (form.lowest - 1), dtype=torch.float64).to(dtype)
    assert above.double() == 2.0**form.lowest


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)],
)
def test_bits_of_fraction_are_those_of_torch(name: str, dtype: torch.dtype) -> None:
    bits = bfloat16.FRACTION_BITS[name]
    assert torch.finfo(dtype).eps == 2.0**-bits
    assert f"{name} has {bits}" in words_of("bfloat16") or f"{bits} bits" in words_of("bfloat16")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(E4M3.name, torch.float8_e4m3fn), (E5M2.name, torch.float8_e5m2)],
)
def test_fp8_has_as_many_numbers_and_errors_as_the_lesson_says(
    name: str, dtype: torch.dtype
) -> None:
    bits = eight_bits.FRACTION_BITS[name]
    every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    between = every[(every >= 1) & (every < 2)]
    assert len(between) == 2**bits
    values = torch.linspace(1, 2, 10_001)
    error = ((values.to(dtype).float() - values) / values).abs().max().item()
    assert 2.0 ** -(bits + 2) < error <= 2.0 ** -(bits + 1)
    assert f"1/{2 ** (bits + 1)}" in words_of("eight_bits")


def test_bits_of_exponent_of_fp8() -> None:
    assert "e4m3 has 4 bits of exponent and 3 of fraction" in words_of("eight_bits")
    assert "e5m2 has 5 and 2" in words_of("eight_bits")
    assert 1 + 4 + eight_bits.FRACTION_BITS[E4M3.name] == 8
    assert 1 + 5 + eight_bits.FRACTION_BITS[E5M2.name] == 8


def test_next_to_a_tenth_bf16_numbers_are_half_a_thousandth_apart() -> None:
    value = torch.tensor(0.1, dtype=torch.bfloat16)
    after = torch.nextafter(value, torch.tensor(1.0, dtype=torch.bfloat16))
    assert (after - value).item() == bfloat16.spacing(0.1) == 2.0**-11
    assert round(2.0**-11, 4) == 0.0005


def test_a_bf16_weight_of_a_tenth_stays_when_it_is_to_move_by_two_ten_thousandths() -> None:
    weight = torch.tensor(0.1, dtype=torch.bfloat16)
    assert torch.equal(weight + 0.0002, weight)
    assert torch.equal(weight - 0.0002, weight)
    assert not torch.equal(weight + 0.0003, weight)
    assert torch.tensor(0.1) + 0.0002 != torch.tensor(0.1)


@pytest.mark.parametrize("value", [0.1, -0.09, 0.146, 1.0, 1.99, 3e-5])
def test_the_spacing_that_is_shown_is_that_of_bf16(value: float) -> None:
    here = torch.tensor(value, dtype=torch.bfloat16)
    away = torch.nextafter(here, torch.tensor(math.copysign(9.0, value), dtype=torch.bfloat16))
    assert bfloat16.spacing(here.item()) == abs((away - here).item())


def test_only_what_did_not_move_although_it_should_is_pointed_at() -> None:
    each = Followed(
        "w", "bfloat16", "bfloat16", (3,), (0, 1, 2), scaled=(1.0, 1.0, 0.0),
        unscaled=(1.0, 1.0, 0.0), before=(0.5, 0.5, 0.5), after=(0.5, 0.25, 0.5),
    )  # fmt: skip
    assert bfloat16.kept(each, 0.0019) == [0]
    assert bfloat16.kept(each, 0.0020) == []  # beyond 2^-9, half of what lies between


def test_a_square_is_beyond_fp16_from_256_on() -> None:
    value = torch.tensor(256.0, dtype=torch.float16)
    assert math.isinf((value * value).item())
    below = torch.nextafter(value, torch.tensor(0.0, dtype=torch.float16))
    assert math.isfinite((below * below).item())


# The scaler.


def test_from_the_scale_that_the_lesson_calls_too_small_on_its_inverse_is_inf() -> None:
    too_small = torch.tensor(FATAL_SCALE)
    assert math.isinf(too_small.double().reciprocal().float().item())
    assert math.isfinite((2 * too_small).double().reciprocal().float().item())


def test_growth_and_backoff_are_those_of_torch() -> None:
    scaler = torch.amp.GradScaler("cpu")
    assert scaler.get_growth_interval() == growth.DEFAULT_INTERVAL
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor()) == (2.0, 0.5)
    assert "0.05 %" in words_of("growth")
    assert 1 / growth.DEFAULT_INTERVAL == 0.0005


def test_the_scaler_does_it_in_the_order_that_the_lesson_tells() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step(factor: float) -> None:
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step(math.inf)  # skipped: no weight moves, the scale is halved, the count begins anew
    assert torch.equal(parameter.detach(), torch.ones(2))
    assert scaler.get_scale() == 4.0
    assert scaler._get_growth_tracker() == 0
    step(0.5)  # taken: the gradients were unscaled first
    assert torch.equal(parameter.detach(), torch.full((2,), 0.75))
    assert scaler._get_growth_tracker() == 1


def test_clipping_scaled_gradients_leaves_the_limit_divided_by_the_scale() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale((parameter * 3).sum()).backward()
    torch.nn.utils.clip_grad_norm_([parameter], clipping_lesson.LIMIT)
    scaler.step(optimizer)
    moved = (1 - parameter.detach()).norm().item()
    assert moved == pytest.approx(clipping_lesson.LIMIT / 1024.0, rel=clipping_lesson.NEAR)


def test_step_does_not_unscale_twice() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(parameter.sum() * 0.25).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert parameter.item() == 0.75


def test_every_lesson_names_its_sources() -> None:
    for lesson in LESSONS:
        assert lesson.sources
        assert all(len(source) > 20 for source in lesson.sources)
