"""Taking every step apart changes no bit of the training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint
from training_loops import (
    CLIPPED,
    Case,
    RecordingHost,
    assert_same_weights,
    network,
    train,
)

from ampwatch import host
from ampwatch.controls import Request
from ampwatch.record import StepAnatomy

STEPS = 30


class Asking(RecordingHost):
    """Asks for every step, following another parameter each time."""

    names = ("0.weight", None, "no such", "2.bias")

    def boundary(self, turn: Callable[[Request], Any], *more: Any) -> None:
        turn(Request("explain", self.names[self.last_step % 4]))
        super().boundary(turn, *more)


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    monkeypatch.setitem(counters["stats"], "unique_graphs", 0)
    before, here = host.current(), Asking()
    host.install(here)
    yield here
    host.install(before)


class Block(nn.Module):
    """Attention, in-place operations, views, a part that is computed again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.more = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))
        self.head = nn.Linear(8, 1)

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.layer(values.unsqueeze(1))[:, 0]
        hidden = checkpoint(self.more, hidden, use_reentrant=False)
        hidden += 1
        first, second = hidden.chunk(2)
        return self.head(torch.cat([first * 2, second * hidden.mean()]))


def fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


CASES = {
    "plain": Case(),
    "clipped": CLIPPED,
    "clipped while scaled": Case(clip={"max_norm": 0.5}),
    "accumulated, with dropout": Case(accumulate=3, model=lambda: network(batch_norm=True)),
    "fused": Case(optimizer=fused),
    "without a scaler": Case(scaler=None, dtype=torch.bfloat16),
    "a disabled scaler": Case(scaler={"enabled": False}, dtype=torch.bfloat16),
    "a transformer": Case(model=Block, optimizer=fused),
}


@pytest.mark.parametrize("name", CASES)
def test_the_weights_end_with_the_same_bits(asking: Asking, name: str) -> None:
    case = CASES[name].but(steps=STEPS)
    plain = train(case, hooked=False, look=False)
    explained = train(case, hooked=True, look=False)
    assert_same_weights(plain.weights, explained.weights)
    told = [record for record in asking.records if isinstance(record, StepAnatomy)]
    assert [anatomy.step for anatomy in told] == list(range(1, STEPS))  # the first has no boundary
    assert all(anatomy.operations and anatomy.followed for anatomy in told)
    skipped = {record.step for record in asking.steps if record.skipped}
    assert {each.step for each in told if each.stepped is False} == skipped - {0}
