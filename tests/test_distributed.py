"""Each rank records its own part, and no collective is added."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from training_loops import true_norm

import ampwatch
from ampwatch.log import read_log
from ampwatch.record import RunInfo, StepRecord
from ampwatch.record.facts import split_fact

RANKS = 2
STEPS = 6


def start(rank: int, ranks: int, folder: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks
    )


def replicated(rank: int, folder: str) -> None:
    start(rank, RANKS, folder)
    torch.manual_seed(rank)
    net = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    norms = []
    with ampwatch.hook(net, optimizer, scaler, log=f"{folder}/log"):
        for step in range(STEPS):
            optimizer.zero_grad()
            gain = float("inf") if step == 3 and rank == 1 else 1.0
            scaler.scale(net(torch.randn(2, 4)).pow(2).mean() * gain).backward()
            norms.append(true_norm(net.parameters(), scaler.get_scale()))
            scaler.step(optimizer)
            scaler.update()
    torch.save(norms, f"{folder}/norms-{rank}")
    dist.destroy_process_group()


def facts_by_step(steps: list[StepRecord]) -> dict[int, set[str]]:
    """The names of the facts: the rank whose loss was multiplied by inf tells of it, and no other
    one, and nothing else is told."""
    return {each.step: {split_fact(fact)[0] for fact in each.facts} for each in steps if each.facts}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replicated")
    mp.spawn(replicated, (str(folder),), nprocs=RANKS)
    return folder


@pytest.mark.parametrize("rank", range(RANKS))
def test_each_rank_of_a_replicated_model_has_its_own_log(rank: int, replicas: Path) -> None:
    records = list(read_log(replicas / "log" / f"rank-{rank:05}.jsonl"))
    steps = [record for record in records if isinstance(record, StepRecord)]
    info = [record for record in records if isinstance(record, RunInfo)][-1]
    assert (info.rank, info.world_size) == (rank, RANKS)
    assert set(info.tensors) == {"weight", "bias"}
    assert [record.step for record in steps] == list(range(STEPS))
    assert [record.step for record in steps if record.skipped] == [3], "gradients are averaged"
    norms: Any = torch.load(replicas / f"norms-{rank}")
    for step in (0, 1, 2, 4, 5):
        assert steps[step].grad_norm == pytest.approx(norms[step], rel=1e-6)
    assert facts_by_step(steps) == ({3: {"nonfinite-factor"}} if rank == 1 else {})


def sharded(rank: int, folder: str, ranks: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    start(rank, ranks, folder)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    fully_shard(net, mesh=init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    local = []
    with ampwatch.hook(net, optimizer, scaler, log=f"{folder}/log"):
        for step in range(4):
            optimizer.zero_grad()
            gain = float("inf") if step == 2 and rank == 0 else 1.0
            scaler.scale(net(torch.ones(2, 4)).pow(2).mean() * gain).backward()
            shards = [p.grad.to_local().double() / scaler.get_scale() for p in net.parameters()]
            local.append(sum(float(s.pow(2).sum()) for s in shards) ** 0.5)
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
    torch.save(local, f"{folder}/norms-{rank}")
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_sharded_model_records_the_part_that_lies_here(ranks: int, tmp_path: Path) -> None:
    mp.spawn(sharded, (str(tmp_path), ranks), nprocs=ranks)
    for rank in range(ranks):
        path = tmp_path / "log"
        records = list(read_log(path if ranks == 1 else path / f"rank-{rank:05}.jsonl"))
        norms: Any = torch.load(tmp_path / f"norms-{rank}")
        steps = [record for record in records if isinstance(record, StepRecord)]
        assert [record.step for record in steps if record.skipped] == [2]
        for step in (0, 1, 3):
            assert steps[step].grad_norm == pytest.approx(norms[step], rel=1e-6)
        assert facts_by_step(steps) == ({2: {"nonfinite-factor"}} if rank == 0 else {})
