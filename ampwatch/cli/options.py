"""The options that `demo` and `run` share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ampwatch.cli.fail_on import fail_on_option
from ampwatch.controls import DTYPE, SCALER
from ampwatch.errors import RecordError, UsageError
from ampwatch.record import from_json

FLAT_OUT = "max"
_SHORT_DTYPES = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
}
_DEVICE = re.compile(r"[a-z]+(:\d+)?")


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line; None: not asked."""

    headless: bool
    json_output: bool
    log: str | None
    steps: int | None
    seed: int | None
    device: str | None
    dtype: str | None
    scaler: str | None
    rate: float | str | None
    """Steps a second, or ``FLAT_OUT``."""
    fail_on: tuple[str, ...] | None = None
    """Rules that make the exit code 3."""

    def __post_init__(self) -> None:
        if self.json_output and not self.headless:
            raise UsageError("--json goes with --headless: the dashboard has no use for it")
        if self.fail_on and not self.headless:
            raise UsageError("--fail-on goes with --headless: the dashboard has no use for it")

    def pace(self, usual: float | None) -> float | None:
        """Steps a second to hold back to, where ``usual`` is what holds without the option."""
        if self.rate is None:
            return usual
        return None if isinstance(self.rate, str) else self.rate


def _rate(value: str) -> float | str:
    if value == FLAT_OUT:
        return FLAT_OUT
    try:
        rate = float(value)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise click.BadParameter(
            f"{value!r} is neither a number of steps a second nor {FLAT_OUT!r}."
        )
    return rate


def seed_type(value: str) -> int:
    if not value.isdecimal() or int(value) >= 2**63:
        raise click.BadParameter(f"{value!r} is not a whole number from 0 to 2^63 - 1.")
    return int(value)


def _dtype(value: str) -> str:
    name = value.removeprefix("torch.")
    name = _SHORT_DTYPES.get(name, name)
    if name not in DTYPE.choices:
        choices = ", ".join(map(str, DTYPE.choices))
        raise click.BadParameter(f"{value!r} is not one of {choices}.")
    return name


def device_type(value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a device, such as cpu, cuda, cuda:1 or mps.")
    return value


def _log(value: str) -> str:
    path = Path(value).expanduser().absolute()
    if path.is_dir():
        raise click.BadParameter(f"{value!r} is a folder; name a file in it, such as run.jsonl.")
    if path.exists() and not is_log(path):
        raise click.BadParameter(f"{value!r} exists and is no log of ampwatch; it is left alone.")
    return str(path)


def is_log(path: Path) -> bool:
    """Whether a log can go on in this file: it is empty, or begins with a record."""
    try:
        if path.is_fifo() or path.is_char_device():
            return True
        with path.open("rb") as file:
            line = file.readline(1 << 20)
        if line:
            from_json(line.decode())
    except (OSError, RecordError, UnicodeDecodeError):
        return False
    return True


_TRAINING = (
    click.option("--headless", is_flag=True, help="No screen: progress, then a summary."),
    click.option("--json", "json_output", is_flag=True, help="With --headless: summary as JSON."),
    click.option("--log", type=_log, metavar="PATH", help="Record the run (JSON Lines)."),
    click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Stop after N steps."),
    click.option("--seed", type=seed_type, metavar="N", help="Seed random, numpy and torch."),
    click.option("--device", type=device_type, metavar="NAME", help="cpu, cuda, cuda:1, mps, ..."),
    click.option("--dtype", type=_dtype, metavar="NAME", help="What autocast lowers to."),
    click.option(
        "--scaler",
        type=click.Choice([str(choice) for choice in SCALER.choices]),
        help="What the gradient scaler does.",
    ),
    click.option(
        "--rate",
        type=_rate,
        metavar="N",
        help=f"Hold back to N steps a second; {FLAT_OUT!r} for flat out.",
    ),
    fail_on_option,
)

_F = TypeVar("_F", bound=Callable[..., Any])


def training_options(function: _F) -> _F:
    """Give a command the options that `demo` and `run` share; collect them with Options."""
    for option in reversed(_TRAINING):
        function = option(function)
    return function
