"""How fast the machine itself computes in a format: one matrix product, nothing around it."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from ampwatch.probe.dtypes import dtype_name

SPEED_SECONDS = 0.15
"""For each of the two matrix products that are compared."""
MATRIX = {"cpu": 256}
MATRIX_ELSEWHERE = 1024
DTYPES = (torch.float16, torch.bfloat16)


def main() -> None:
    """Say on stdout, as one JSON object, how fast the device named as the argument is."""
    device = torch.device(sys.argv[1])
    speeds = {}
    for dtype in DTYPES:
        with contextlib.suppress(RuntimeError, NotImplementedError):
            speeds[dtype_name(dtype)] = matrix_speed(device, dtype)
    sys.stdout.write(json.dumps({"name": hardware(device), "speeds": speeds}) + "\n")


def hardware(device: torch.device) -> str:
    """The name of a device, as far as it has one."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def matrix_speed(device: torch.device, dtype: torch.dtype) -> float:
    """A matrix product in this dtype: how many times as fast as in float32."""
    size = MATRIX.get(device.type, MATRIX_ELSEWHERE)
    matrix = torch.ones(size, size, device=device)
    half = matrix.to(dtype)
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)  # threads wait for each other when the machine is busy
    try:
        return _seconds(device, lambda: matrix @ matrix) / _seconds(device, lambda: half @ half)
    finally:
        torch.set_num_threads(threads)


def _seconds(device: torch.device, call: Callable[[], Tensor]) -> float:
    """The shortest time of one call: what else the machine does makes the others longer."""
    times: list[float] = []
    call()
    _wait(device)
    until = time.perf_counter() + SPEED_SECONDS
    while len(times) < 3 or time.perf_counter() < until:
        begun = time.perf_counter()
        call()
        _wait(device)
        times.append(time.perf_counter() - begun)
    return min(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
