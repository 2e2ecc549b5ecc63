"""A small constant that is to keep a value away from 0 is found wherever it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ampwatch.probe.inquest import inquire
from ampwatch.record.facts import split_fact

F = nn.functional
HALF, FLOAT = torch.float16, torch.float32
LOST = 1e-8
"""Below half of float16's smallest number, 2^-24 = 6e-8: it becomes 0 there."""
KEPT = 1e-3

Form = Callable[[Tensor, Tensor, float], Tensor]
"""From values of which one row is 0, values that are 0 or more, and the constant."""


def length(h: Tensor) -> Tensor:
    return h.norm(dim=1, keepdim=True)


def squares(h: Tensor) -> Tensor:
    return h.pow(2).sum(1, keepdim=True)


def centred(h: Tensor) -> Tensor:
    return h - h.mean(1, keepdim=True)


def like(eps: float, h: Tensor) -> Tensor:
    return torch.tensor(eps, dtype=h.dtype)


FORMS: dict[str, Form] = {
    "after a root": lambda h, p, eps: h / (squares(h).sqrt() + eps),
    "before a root": lambda h, p, eps: h / (squares(h) + eps).sqrt(),
    "limit before a root": lambda h, p, eps: h / torch.sqrt(squares(h).clamp(min=eps)),
    "without a root": lambda h, p, eps: h / (squares(h) + eps),
    "after a norm": lambda h, p, eps: h / (length(h) + eps),
    "limit after a norm": lambda h, p, eps: h / length(h).clamp(min=eps),
    "clamp_min": lambda h, p, eps: h / length(h).clamp_min(eps),
    "clamp_min in place": lambda h, p, eps: h / (length(h) * 1).clamp_min_(eps),
    "clip": lambda h, p, eps: 1 / p.clip(eps),
    "limit as a tensor": lambda h, p, eps: h / length(h).clamp(like(eps, h)),
    "maximum": lambda h, p, eps: h / torch.maximum(length(h), like(eps, h)),
    "max of two": lambda h, p, eps: h / torch.max(like(eps, h), length(h)),
    "normalize": lambda h, p, eps: F.normalize(h, eps=eps),
    "cosine similarity": lambda h, p, eps: F.cosine_similarity(h, h * 1, eps=eps),
    "after a sum": lambda h, p, eps: h / (h.abs().sum(1, keepdim=True) + eps),
    "before a sum": lambda h, p, eps: h / (h.abs() + eps).sum(1, keepdim=True),
    "after a mean": lambda h, p, eps: h / (h.abs().mean(1, keepdim=True) + eps),
    "after amax": lambda h, p, eps: h / (h.abs().amax(1, keepdim=True) + eps),
    "after max": lambda h, p, eps: h / (h.abs().max(1, keepdim=True)[0] + eps),
    "beside a deviation": lambda h, p, eps: centred(h) / (h.std(1, keepdim=True) + eps),
    "beside a variance": lambda h, p, eps: centred(h) * (h.var(1, keepdim=True) + eps).rsqrt(),
    "log": lambda h, p, eps: torch.log(p + eps),
    "log of a limit": lambda h, p, eps: torch.log(p.clamp(eps, 1 - eps)),
    "log of a maximum": lambda h, p, eps: torch.log(torch.maximum(p, like(eps, p))),
    "log2": lambda h, p, eps: torch.log2(p + eps),
    "log10": lambda h, p, eps: torch.log10(p + eps),
    "log of one minus": lambda h, p, eps: torch.log(1 - torch.sigmoid(p * 0 + 40) + eps),
    "log of a softmax": lambda h, p, eps: torch.log(torch.softmax(h * 1e4, 1) + eps),
    "log of a quotient": lambda h, p, eps: torch.log((p + eps) / (p + eps)),
    "entropy": lambda h, p, eps: (lambda q: q * (q + eps).log())(torch.softmax(h * 1e4, 1)),
    "reciprocal": lambda h, p, eps: (p + eps).reciprocal(),
    "one over": lambda h, p, eps: 1 / (p + eps),
    "constant in front": lambda h, p, eps: 1 / (eps + p),
    "constant as a tensor": lambda h, p, eps: 1 / (p + like(eps, p)),
    "torch.add": lambda h, p, eps: torch.div(1.0, torch.add(p, eps)),
    "added in place": lambda h, p, eps: 1 / (p * 1).add_(eps),
    "divided in place": lambda h, p, eps: (h * 1).div_(length(h) + eps),
    "rsqrt": lambda h, p, eps: (p + eps).rsqrt(),
    "power of a half": lambda h, p, eps: (p + eps) ** -0.5,
    "power of one": lambda h, p, eps: (p + eps).pow(-1),
    "dice": lambda h, p, eps: 1 - (2 * p[:1].sum() + eps) / (p[:1].sum() + p[:1].sum() + eps),
    "through views": lambda h, p, eps: h / (h.norm(dim=1) + eps)[:, None].expand(4, 8),
    "times a number": lambda h, p, eps: h / ((length(h) + eps) * 2.0),
    "divided in float32": lambda h, p, eps: h.float() / (length(h) + eps).float(),
    "logit": lambda h, p, eps: torch.logit(torch.sigmoid(p * 0 + 40), eps=eps),
}  # fmt: skip


def found(form: Form, eps: float, dtype: torch.dtype, further: bool) -> str | None:
    """The name of the fact about a loss; None for one that is finite.

    Args:
        further: the loss is made of it by operations that keep what they get.
    """
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(8, 8))
    rows = torch.tensor([0.0, 1.0, 1.0, 1.0])[:, None]
    hidden = (torch.randn(4, 8) @ weight) * rows
    positive = torch.sigmoid(hidden) * rows
    out = form(hidden.to(dtype), positive.to(dtype), eps).float()
    loss = (out.sum(-1) - 1).pow(2).mean() if further else out.sum()
    if bool(torch.isfinite(loss)):
        return None
    told = inquire([loss * 1024.0], lambda parameters: [""] * len(parameters))
    return None if told is None else split_fact(told)[0]


@pytest.mark.parametrize("further", [False, True], ids=["sum", "squared error"])
@pytest.mark.parametrize("name", FORMS)
def test_a_constant_that_float16_makes_0_is_found(name: str, further: bool) -> None:
    assert found(FORMS[name], LOST, HALF, further) == "epsilon-underflow"


@pytest.mark.parametrize("name", FORMS)
def test_a_constant_that_is_large_enough_is_not(name: str) -> None:
    # 1e-3 itself is kept; its square, as cosine similarity has it, is 1e-6 and kept too.
    assert found(FORMS[name], KEPT, HALF, further=True) is None


@pytest.mark.parametrize("name", FORMS)
def test_float32_keeps_it(name: str) -> None:
    assert found(FORMS[name], LOST, FLOAT, further=True) != "epsilon-underflow"


WITHOUT_GUARD: dict[str, Form] = {
    "0/0": lambda h, p, eps: h / length(h),
    "log of 0": lambda h, p, eps: torch.log(p),
    "limit of 0": lambda h, p, eps: h / h.clamp(min=0),
    "the larger of two": lambda h, p, eps: 1 / torch.maximum(p, p * 0.5),
    "a sum far before": lambda h, p, eps: h / torch.relu(h - 30 + 1.0).sum(1, keepdim=True),
    "a sum that is never 0": lambda h, p, eps: h / (((h * 0).exp().sqrt() + 1.0) * 0),
}


@pytest.mark.parametrize("name", WITHOUT_GUARD)
@pytest.mark.parametrize("further", [False, True], ids=["sum", "squared error"])
def test_division_by_0_without_a_guard_is_mathematics(name: str, further: bool) -> None:
    assert found(WITHOUT_GUARD[name], LOST, HALF, further) == "nan-born"


OVERFLOWS: dict[str, Form] = {
    "power of a value that is 0 elsewhere": lambda h, p, eps: (p * 100).pow(4),
    "power after a sum with a constant": lambda h, p, eps: (torch.relu(h * 100) + 0.0).pow(3),
    "product": lambda h, p, eps: p * 3000 * p * 3000,
    "quotient": lambda h, p, eps: (p + 1) * 3e4 / (p * 0 + 0.25),
    "matrix product": lambda h, p, eps: (h * 300) @ (h * 300).T * 10,
}


@pytest.mark.parametrize("name", OVERFLOWS)
@pytest.mark.parametrize("further", [False, True], ids=["sum", "squared error"])
def test_what_is_too_large_is_an_overflow(name: str, further: bool) -> None:
    assert found(OVERFLOWS[name], LOST, HALF, further) == "forward-overflow"
