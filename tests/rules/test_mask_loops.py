"""Masks beyond float16, and masks that fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from watched_loops import INF, F, Loops, amp, mlp, scaling

LOOPS = Loops()


class Attention(nn.Module):
    """One head, whose scores are masked as a test says."""

    def __init__(self, mask: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.mask = mask

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4
        return self.mask(scores, hidden).softmax(-1).to(x.dtype) @ self.value(x).to(x.dtype)


def att(mask: Callable[[Tensor, Tensor], Tensor], every: int = 10, rows: bool = True) -> None:
    """Hides one place of each row always, and a whole row now and then."""
    model = Attention(mask)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(30):
        x, hidden = torch.randn(4, 6, 16), torch.zeros(4, 6, 6)
        hidden[:, :, 5] = 1
        if rows and step % every == every - 1:
            hidden[0, 0, :] = 1
        optimizer.zero_grad()
        with amp():
            loss = F.mse_loss(model(x, hidden).float(), x.mean(-1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("mask-overflow", may="nan-not-overflow forward-overflow")
def mask_filled_with_inf() -> None:
    att(lambda sc, model: sc.masked_fill(model.bool(), -INF))


@LOOPS.add("mask-overflow", may="nan-not-overflow forward-overflow")
def mask_chosen() -> None:
    att(
        lambda sc, model: torch.where(
            model.bool(), torch.tensor(-1e9, dtype=torch.float32).to(sc.dtype), sc
        )
    )


@LOOPS.add("mask-overflow", may="nan-not-overflow forward-overflow")
def mask_added() -> None:
    att(lambda sc, model: sc + (model * -1e9).half())


@LOOPS.add("mask-overflow", may="nan-not-overflow forward-overflow scale-collapse")
def mask_in_every_batch() -> None:
    att(lambda sc, model: sc + (model * -1e9).half(), every=1)


@LOOPS.add("mask-overflow", may="nan-not-overflow forward-overflow")
def mask_below_the_smallest_number() -> None:
    att(lambda sc, model: (sc - 40) + model.half() * torch.finfo(torch.float16).min)


@LOOPS.add("mask-overflow", may="nan-not-overflow forward-overflow")
def mask_added_in_float32_and_lowered() -> None:
    model = nn.Linear(16, 16)
    v = nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *v.parameters()], 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(30):
        x = torch.randn(4, 6, 16)
        bias = torch.zeros(4, 6, 6)
        if step % 10 == 9:
            bias[1] = -1e9
        optimizer.zero_grad()
        with amp():
            q = model(x)
            sc = (q @ q.transpose(1, 2)).float() + bias
            a = sc.half().softmax(-1)
            loss = (a @ v(x)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("mask-overflow", may="nan-not-overflow forward-overflow")
def mask_before_a_log_softmax() -> None:
    model = mlp(16, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(30):
        x = torch.randn(8, 16)
        mask = torch.zeros(8, 4)
        if step % 10 == 9:
            mask[0] = 1
        optimizer.zero_grad()
        with amp():
            loss = F.nll_loss(
                F.log_softmax(model(x) + (mask * -1e9).half(), 1).float(), x[:, :4].argmax(1)
            )
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("mask-overflow", may="nan-not-overflow forward-overflow")
def mask_in_multi_head_attention() -> None:
    model = nn.MultiheadAttention(16, 2, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    scaler = scaling(init_scale=1024.0)
    for step in range(30):
        x = torch.randn(4, 6, 16)
        pad = torch.zeros(4, 6, dtype=torch.bool)
        if step % 10 == 9:
            pad[0] = True
        optimizer.zero_grad()
        with amp():
            loss = model(x, x, x, key_padding_mask=pad)[0].float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@LOOPS.add("mask-overflow", error="Half")
def mask_that_torch_refuses() -> None:
    att(lambda sc, model: sc.masked_fill(model.bool(), -1e9))


@LOOPS.add()
def mask_that_fits() -> None:
    att(lambda sc, model: sc.masked_fill(model.bool(), -1e4))


@LOOPS.add()
def mask_of_parts_of_rows() -> None:
    att(lambda sc, model: sc.masked_fill(model.bool(), -INF), rows=False)


@LOOPS.add()
def mask_in_float32() -> None:
    att(lambda sc, model: sc.float() + model * -1e9)


@pytest.mark.parametrize("loop", LOOPS.all, ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found(loop: object) -> None:
    LOOPS.check(loop)
