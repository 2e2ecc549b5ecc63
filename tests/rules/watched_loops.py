"""Small training loops, each with the findings that it must have: the loops of these tests.

A loop is a function that trains something with torch alone; it is hooked as a whole and judged by
what the rules find in its records.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from training_loops import recording

import ampwatch
from ampwatch.probe.inquest import inquire
from ampwatch.probe.late_inquest import LateInquest
from ampwatch.probe.operations import Naming
from ampwatch.record import RunEnd
from ampwatch.rules import RULE_BY_ID, RULES, Finding
from ampwatch.run import Run

INF, NAN = float("inf"), float("nan")
F = nn.functional
TROUBLE = ("error", "warning")


@dataclass(frozen=True)
class Loop:
    run: Callable[[], None]
    must: frozenset[str]
    """Rules that must be found."""
    may: frozenset[str]
    """Errors and warnings that are true as well."""
    error: str | None
    """What torch raises."""

    def __str__(self) -> str:
        return self.run.__name__


class Loops:
    """The loops of one file."""

    def __init__(self) -> None:
        self.all: list[Loop] = []

    def add(self, must: str = "", may: str = "", error: str | None = None) -> Any:
        def keep(run: Callable[[], None]) -> Callable[[], None]:
            sets = frozenset(must.split()), frozenset(may.split())
            assert RULE_BY_ID.keys() >= sets[0] | sets[1]
            self.all.append(Loop(run, *sets, error))
            return run

        return keep

    def check(self, loop: Loop) -> dict[str, Finding]:
        """Run it and compare; the findings, for a closer look."""
        run, ended = watched(loop.run)
        findings = [finding for rule in RULES for finding in rule.check(run)]
        names = {finding.rule for finding in findings}
        wrong = [
            f"{finding.rule}: {finding.message}"
            for finding in findings
            if finding.severity in TROUBLE and finding.rule not in loop.must | loop.may
        ]
        missing = ", ".join(loop.must - names)
        assert not missing, f"not found: {missing}"
        assert not wrong, f"wrongly found: {'; '.join(wrong)}"
        assert (ended is None) == (loop.error is None), ended
        assert loop.error is None or loop.error in (ended or ""), ended
        return {finding.rule: finding for finding in findings}


def inquire_twice(roots: list[Tensor], names: Naming) -> str | None:
    """The inquest of a loss that is not finite; what a device would answer later is the same."""
    late = LateInquest(roots, names)
    found = inquire(roots, names)
    assert late.fact(late.scalars.tolist()) == found
    return found


def watched(loop: Callable[[], None]) -> tuple[Run, str | None]:
    """A loop as the rules see it, and the error that ended it."""
    torch.manual_seed(0)
    ended = None
    with recording() as host, warnings.catch_warnings(), pytest.MonkeyPatch.context() as judging:
        warnings.simplefilter("ignore")  # torch warns of some of these mistakes itself
        judging.setattr("ampwatch.trouble.inquire", inquire_twice)
        judging.setattr("ampwatch.probe.late_inquest.at_hand", lambda tensor: False)
        hook = ampwatch.hook()
        try:
            loop()
        except Exception as error:
            ended = f"{type(error).__name__}: {error}"
        finally:
            hook.close()
    failed = [notice for notice in host.notices if "stopped watching" in notice]
    assert not failed, failed
    run = Run()
    for record in host.records:
        run.add(record)
    run.add(RunEnd("failed" if ended else "finished", run.steps, ended))
    return run, ended


def findings_of(loop: Callable[[], None]) -> dict[str, Finding]:
    """By rule."""
    run, _ = watched(loop)
    return {finding.rule: finding for rule in RULES for finding in rule.check(run)}


def amp(dtype: torch.dtype = torch.float16) -> torch.autocast:
    return torch.autocast("cpu", dtype=dtype)


def scaling(**settings: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **settings)


def mlp(
    inputs: int = 16, hidden: int = 32, outputs: int = 1, activation: type[nn.Module] = nn.ReLU
) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), activation(), nn.Linear(hidden, outputs))


def mean_loss(model: nn.Module, x: Tensor) -> Tensor:
    return F.mse_loss(model(x).float(), x.mean(1, keepdim=True))


def sum_loss(model: nn.Module, x: Tensor) -> Tensor:
    return F.mse_loss(model(x).float(), x.sum(1, keepdim=True))


def scaled_down(factor: float) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda model, x: mean_loss(model, x) * factor


def wide(step: int) -> Tensor:
    """A batch for ``mlp(32, 64)``."""
    return torch.randn(64, 32)


class Now:
    """The number of the step that is being taken, for losses that depend on it."""

    step = 0


def train(
    model: nn.Module | None = None,
    steps: int = 60,
    loss: Callable[[Any, Tensor], Tensor] = mean_loss,
    scaler: torch.amp.GradScaler | None = None,
    dtype: torch.dtype = torch.float16,
    data: Callable[[int], Tensor] = lambda step: torch.randn(32, 16),
    before_step: Callable[[int, Any, Any, Any], object] | None = None,
    rate: float = 1e-3,
    optimizer: Callable[[Any, float], Optimizer] = AdamW,
) -> None:
    """A correct loop, in which one thing may be put in the place of another."""
    model = mlp() if model is None else model
    stepping = optimizer(model.parameters(), rate)
    scaler = scaling(init_scale=1024.0) if scaler is None else scaler
    for step in range(steps):
        Now.step = step
        x = data(step)
        stepping.zero_grad()
        with amp(dtype):
            value = loss(model, x)
        scaler.scale(value).backward()
        if before_step is not None:
            before_step(step, model, stepping, scaler)
        scaler.step(stepping)
        scaler.update()
