"""What a step keeps for backward: against arithmetic, and against torch's own hooks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from training_loops import RecordingHost, recording

import ampwatch
from ampwatch.probe.saved_bytes import saved_bytes

BATCH, INPUTS, HIDDEN = 4, 8, 16
FLOAT, HALF = 4, 2


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU())


def test_a_linear_layer_keeps_its_input_and_a_relu_its_result() -> None:
    model = layers()
    out = model(torch.randn(BATCH, INPUTS))
    assert saved_bytes([out], [model]) == BATCH * INPUTS * FLOAT + BATCH * HIDDEN * FLOAT


def test_autocast_keeps_half_as_much() -> None:
    model = layers()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(torch.randn(BATCH, INPUTS))
    # The copy of the weight in bfloat16 is not kept: nobody asks for the input's gradient.
    assert saved_bytes([out], [model]) == BATCH * INPUTS * HALF + BATCH * HIDDEN * HALF


def test_a_low_precision_copy_of_a_weight_counts_and_the_weight_does_not() -> None:
    model = layers()
    x = torch.randn(BATCH, INPUTS, requires_grad=True)
    # x is a leaf of the graph, as the weights are: it is there anyway, but not its copy.
    assert saved_bytes([model(x)], [model]) == BATCH * HIDDEN * FLOAT
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
    values = BATCH * INPUTS + INPUTS * HIDDEN + BATCH * HIDDEN
    assert saved_bytes([out], [model]) == values * HALF


def test_a_storage_counts_once_and_as_a_whole() -> None:
    x = torch.randn(100, requires_grad=True)
    y = x + x  # keeps nothing
    loss = (y[:10] * y[90:]).sum() + (y * y).sum()
    # Every product keeps y or parts of it, and so all of it.
    assert saved_bytes([loss]) == 100 * FLOAT


def test_frozen_parameters_and_buffers_do_not_count() -> None:
    model = nn.Sequential(nn.Linear(INPUTS, INPUTS), nn.BatchNorm1d(INPUTS)).requires_grad_(False)
    model.eval()
    x = torch.randn(BATCH, INPUTS, requires_grad=True)
    loss = model(x).square().sum()
    without, with_weights = saved_bytes([loss], [model]), saved_bytes([loss])
    assert without is not None
    assert with_weights is not None
    assert with_weights > without
    assert saved_bytes([model[0](x).sum()], [model]) == 0


def test_nothing_is_kept_for_a_tensor_without_a_graph() -> None:
    assert saved_bytes([torch.ones(3), torch.ones(3, requires_grad=True)]) == 0


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def by_hooks(model: nn.Module, x: Tensor, dtype: torch.dtype) -> int:
    """The same by torch's public hooks, which see each tensor when it is saved."""
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        forward(model, x, dtype)
    present = {
        each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())
    }
    return sum(size for place, size in kept.items() if place not in present)


def forward(model: nn.Module, x: Tensor, dtype: torch.dtype) -> Tensor:
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        out = model(x)
    out = out[0] if isinstance(out, tuple) else out
    return Square.apply(out).mean()  # type: ignore[no-any-return]


MODELS = {
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3),
            nn.Flatten(), nn.Linear(36, 3),
        ),
        lambda: torch.randn(2, 1, 8, 8),
    ),
    "attention": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        lambda: torch.randn(2, 5, 16),
    ),
    "recurrent": (lambda: nn.GRU(8, 8, 2), lambda: torch.randn(3, 2, 8)),
    "embedding": (
        lambda: nn.Sequential(
            nn.Embedding(10, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.Softmax(-1)
        ),
        lambda: torch.randint(0, 10, (4, 5)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_autograds_own_hooks_see(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    make_model, make_input = MODELS[name]
    model, x = make_model(), make_input()
    expected = by_hooks(model, x, dtype)
    assert expected > 0
    assert saved_bytes([forward(model, x, dtype)], [model]) == expected


# -- in a loop ------------------------------------------------------------------------------------


def train(here: RecordingHost, steps: int, forward: Any = None) -> None:
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = ampwatch.hook(model, optimizer)
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(BATCH, INPUTS)
        loss = (forward or (lambda model, x: model(x)))(model, x).square().mean()
        if step == 2:
            here.resumed = True  # as after a pause
        loss.backward()
        optimizer.step()
    watch.close()


def test_the_first_step_after_a_pause_tells_it_and_no_other() -> None:
    with recording(measures_memory=True) as here:
        train(here, 5)
    told = {step.step: dict(step.metrics) for step in here.steps if step.metrics}
    assert told == {2: {"saved_bytes": BATCH * (INPUTS + HIDDEN) * FLOAT}}


def test_nobody_asked_nothing_is_counted() -> None:
    with recording() as here:
        train(here, 4)
    assert not any(step.metrics for step in here.steps)


def test_what_checkpointing_packs_is_not_counted() -> None:
    def with_checkpoint(model: nn.Sequential, x: Tensor) -> Tensor:
        return checkpoint(model, x, use_reentrant=False)  # type: ignore[no-any-return]

    with recording(measures_memory=True) as here:
        train(here, 4, with_checkpoint)
    assert len(here.steps) == 4
    assert not any(step.metrics for step in here.steps)


def test_of_several_passes_in_one_step_the_largest_counts() -> None:
    with recording(measures_memory=True) as here:
        model = layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        watch = ampwatch.hook(model, optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            here.resumed = True
            for batch in (BATCH, 2 * BATCH, BATCH):
                model(torch.randn(batch, INPUTS)).sum().backward()
            optimizer.step()
        watch.close()
    largest = 2 * BATCH * (INPUTS + HIDDEN) * FLOAT
    assert [step.metrics["saved_bytes"] for step in here.steps] == [largest, largest]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_memory_is_the_devices_own_figure() -> None:
    command = ["compare", "--json", "--device", "cuda", "--steps", "40", "linear"]
    done = subprocess.run(
        [sys.executable, "-m", "ampwatch", *command], capture_output=True, text=True, check=True
    )
    body = json.loads(done.stdout)
    assert body["device"] == "cuda:0"
    for run in body["runs"]:
        assert (run["status"], run["memory_kind"]) == ("finished", "peak")
        assert run["memory_bytes"] >= 4 * (32 * 64 + 64 + 64 + 1), "the parameters at least"
        assert run["step_seconds"] > 0
