"""The hook a loop holds: it sees every step, says what it saw, and changes nothing."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TypeVar

from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch import host as hosts
from ampwatch.host import Host
from ampwatch.loop import Loop

T = TypeVar("T")

_open: list[Watch] = []


class Watch:
    """A watched loop; made by :func:`hook`."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        scalers: Sequence[GradScaler],
        host: Host,
        budget: float,
        owns_host: bool,
    ) -> None:
        self._host = host
        self._owns_host = owns_host
        self._loop = Loop(models, optimizers, host, budget)
        for request in host.initial:
            self._loop.knobs.start(request)
        for scaler in scalers:
            self._loop.scaling.adopt(scaler)
        _open.append(self)

    @property
    def target_gain(self) -> float:
        """What to multiply targets by: 1.0, until somebody at a dashboard turns it."""
        knobs = self._loop.knobs
        knobs.target_gain_read = True
        return knobs.target_gain

    def steps(self, iterable: Iterable[T], total: int | None = None) -> Iterator[T]:
        """Go through ``iterable``; its length, or ``total``, gives progress and time left.

        Where several rounds go into one step (accumulation), the first steps show how many.
        """
        if total is None:
            with contextlib.suppress(TypeError):
                total = len(iterable)  # type: ignore[arg-type]
        first = self._host.last_step + 1
        for rounds, item in enumerate(iterable, 1):
            yield item
            if total is not None and rounds & (rounds - 1) == 0:  # 1, 2, 4, 8, …: ever better
                taken = self._host.last_step + 1 - first
                if taken > 0:
                    self._loop.recorder.total = first + round(total * taken / rounds)

    def log(self, **metrics: float | Tensor) -> None:
        """Add values of your own to the record of the next step, to be plotted with the rest.

        A tensor on a device is not waited for. What is no number is left out.
        """
        for name, value in metrics.items():
            if isinstance(value, Tensor) and value.device.type != "cpu" and value.numel() == 1:
                self._loop.recorder.late[name] = value.detach()
                continue
            with contextlib.suppress(TypeError, ValueError, RuntimeError):
                self._loop.recorder.metrics[name] = float(value)

    def summary(self) -> str:
        """What was seen so far, in a few lines of plain text."""
        with contextlib.suppress(Exception):
            self._loop.reader.flush(wait=True)
        return self._loop.recorder.tally.text()

    def close(self, status: str = "finished", error: str | None = None) -> None:
        """Leave everything as it was found; any number of times."""
        self._loop.close()
        if self in _open:
            _open.remove(self)
        if self._owns_host:
            self._host.close(status, error)

    def overlaps(
        self,
        models: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        scaler: GradScaler | None,
    ) -> bool:
        """Whether it watches every optimizer there is, or any of these already."""
        loop = self._loop
        return (
            loop.optimizers.everything
            or any(loop.names.holds(model) for model in models)
            or loop.optimizers.overlaps(optimizers)
            or (scaler is not None and loop.scaler is scaler)
        )

    def scalers(self) -> list[GradScaler]:
        """The scalers it listens to."""
        return self._loop.scalers()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self.close("stopped")
        else:
            self.close("failed", f"{type(error).__name__}: {error}")


def hook(
    model: nn.Module | Sequence[nn.Module] | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    scaler: GradScaler | None = None,
    *,
    log: str | None = None,
    budget: float = 0.01,
    name: str | None = None,
) -> Watch:
    """Watch a training loop from here on; the loop itself stays as it is.

    Args:
        model: names the parameters; several as a list.
        optimizer: whose steps are seen; several as a list. Without a model and an optimizer,
            every optimizer of the process is seen.
        scaler: the loop's GradScaler, if it has one. One made later is found by itself.
        log: where to record, a file of JSON Lines; by default what ``AMPWATCH_LOG`` names.
        budget: share of the step time that watching may take. Expensive probes come as rarely as
            that asks; where every step alone takes more, they still come now and then.
        name: what to call the run.

    Returns:
        A :class:`Watch`: ``steps``, ``target_gain``, ``log`` and ``summary`` for the loop, and
        ``close``; it is a context manager too.

    Raises:
        LogError: the log cannot be written.
        ValueError: ``budget`` is not between 0 and 1.
    """
    if not 0.0 <= budget <= 1.0:
        raise ValueError(f"budget is a share of the step time, from 0 to 1, not {budget!r}")
    models = _listed(model)
    optimizers = _listed(optimizer)
    scalers = [] if scaler is None else [scaler]
    for other in _open.copy():
        if other.overlaps(models, optimizers, scaler):
            # Attaching again replaces what was attached; scalers it has found stay found.
            scalers += [each for each in other.scalers() if each is not scaler]
            other.close()
    scalers.reverse()  # the one that was handed over comes last: it is the loop's own
    host = hosts.current()
    if host is not None:
        if name is not None:
            host.describe(name=name)
        return Watch(models, optimizers, scalers, host, budget, owns_host=False)
    host = hosts.outside(log or os.environ.get("AMPWATCH_LOG"), name)
    return Watch(models, optimizers, scalers, host, budget, owns_host=True)


def _listed(given: T | Sequence[T] | None) -> list[T]:
    if given is None:
        return []
    if isinstance(given, (list, tuple)):
        return list(given)
    return [given]  # type: ignore[list-item]


@atexit.register
def _close_open() -> None:
    """A script that ends without closing its hook still gets the last line of its log."""
    error = getattr(sys, "last_value", None)
    for watch in _open.copy():
        if error is None:
            watch.close()
        elif isinstance(error, KeyboardInterrupt):
            watch.close("stopped")
        else:
            watch.close("failed", f"{type(error).__name__}: {error}")
