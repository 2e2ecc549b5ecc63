"""The hook a loop holds: it sees every step, says what it saw, and changes nothing."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from ampwatch import host as hosts
from ampwatch.host import Host
from ampwatch.knobs import Knobs
from ampwatch.probe import private
from ampwatch.probe.autocast import AutocastWatch, active
from ampwatch.probe.backward import BackwardWatch, Roots
from ampwatch.probe.clipping import ClipWatch
from ampwatch.probe.finders import ModelFinder, OptimizerFinder, ScalerFinder
from ampwatch.probe.parameters import Parameters, trained
from ampwatch.probe.scaler import describe, listen, tensors_in, unlisten
from ampwatch.probe.steps import OptimizerState, StepReader
from ampwatch.record import Notice, StepRecord, TensorStats
from ampwatch.tally import Tally

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

GRAPHS_READ = 8
"""So many losses show the order of gradients; after that no graph is walked any more."""
GRAPH_SEARCH_NODES = 256
"""A scaled loss is at most a few operations (a division, a sum) below what is back-propagated."""

_open: weakref.WeakSet[Watch] = weakref.WeakSet()


def _ours(fallback: int | None = None) -> Callable[[F], F]:
    """For what is called from inside the loop: our failure must never reach it.

    Args:
        fallback: position of the argument that is handed back when we fail.
    """

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(self: Watch, *args: Any) -> Any:
            begun = time.perf_counter()
            try:
                if not self.closed:
                    return method(self, *args)
            except Exception as error:  # whatever it is, training goes on
                self._detach(error)
            finally:
                self.reader.spent += time.perf_counter() - begun
            return None if fallback is None else args[fallback]

        return call  # type: ignore[return-value]

    return decorate


class Watch:
    """A watched loop; made by :func:`hook`."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        scaler: GradScaler | None,
        host: Host,
        budget: float,
        owns_host: bool,
    ) -> None:
        self.closed = False
        self.scaler: GradScaler | None = None
        """The scaler whose step was seen last, or that was handed over."""
        self.autocast = AutocastWatch()
        self.knobs = Knobs(self)
        self.host = host
        self._owns_host = owns_host
        self._tally = Tally()
        self._parameters = Parameters()
        self.reader = StepReader(self._parameters, self._take, budget / 2)
        self._any_optimizer = not models and not optimizers
        self._states: dict[int, OptimizerState] = {}
        self._foreign: set[int] = set()
        self._own = {
            id(parameter)
            for source in (*(model.parameters() for model in models), *map(trained, optimizers))
            for parameter in source
        }
        self._scalers: list[weakref.ref[GradScaler]] = []
        self._given = [] if scaler is None else [weakref.ref(scaler)]
        self._losses: list[Tensor] = []
        self._losses_told = False
        self._scaled: set[int] = set()
        self._graphs = 0
        self._facts: set[str] = set()
        self._metrics: dict[str, float] = {}
        self._late: dict[str, Tensor] = {}
        self._boundary_due = False
        self._updates = False
        self._told: tuple[Any, ...] | None = None
        self._total: int | None = None
        self._models = ModelFinder()
        self._parts = (
            self.autocast,
            BackwardWatch(self._backward),
            ClipWatch(self._clipped),
            OptimizerFinder(self._before_optimizer, self._after_optimizer),
            ScalerFinder(self._adopt),
        )
        for model in models:
            self._parameters.add_model(model)
        for part in self._parts:
            part.open()
        if self._any_optimizer:
            self._models.open()
        if scaler is not None:
            self._adopt(scaler)
        for request in host.initial:
            self.knobs.start(request)
        _open.add(self)

    # -- what a loop calls ----------------------------------------------------------------------

    @property
    def target_gain(self) -> float:
        """What to multiply targets by: 1.0, until somebody at a dashboard turns it."""
        self.knobs.target_gain_read = True
        return self.knobs.target_gain

    def steps(self, iterable: Iterable[T], total: int | None = None) -> Iterator[T]:
        """Go through ``iterable``; its length, or ``total``, gives progress and time left.

        Where several rounds go into one step (accumulation), the first steps show how many.
        """
        if total is None:
            with contextlib.suppress(TypeError):
                total = len(iterable)  # type: ignore[arg-type]
        first = self.reader.step if self._tally.records else 0
        for rounds, item in enumerate(iterable, 1):
            yield item
            if total is not None and rounds & (rounds - 1) == 0:  # 1, 2, 4, 8, …: ever better
                taken = self.reader.step + 1 - first if self._tally.records else 0
                if taken > 0:
                    self._total = first + round(total * taken / rounds)

    def log(self, **metrics: float | Tensor) -> None:
        """Add values of your own to the record of the next step, to be plotted with the rest.

        A tensor on a device is not waited for.
        """
        for name, value in metrics.items():
            if isinstance(value, Tensor) and value.device.type != "cpu" and value.numel() == 1:
                self._late[name] = value.detach()
                continue
            with contextlib.suppress(TypeError, ValueError, RuntimeError):
                self._metrics[name] = float(value)

    def summary(self) -> str:
        """What was seen so far, in a few lines of plain text."""
        self.reader.flush(wait=True)
        return self._tally.text()

    def close(self, status: str = "finished", error: str | None = None) -> None:
        """Leave everything as it was found; any number of times."""
        if self.closed:
            return
        with contextlib.suppress(Exception):
            self.reader.flush(wait=True)
        self._undo()
        if self._owns_host:
            self.host.close(status, error)

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

    # -- what a scaler calls --------------------------------------------------------------------

    @_ours(fallback=1)
    def before_scale(self, scaler: GradScaler, outputs: Any) -> Any:
        losses = tensors_in(outputs)
        self._add_losses(losses)
        gain = self.knobs.loss_gain
        return outputs if gain == 1.0 else _multiplied(outputs, gain)

    @_ours()
    def after_scale(self, scaler: GradScaler, scaled: Any) -> None:
        for tensor in tensors_in(scaled):
            if tensor.grad_fn is not None:
                self._scaled.add(private.sequence_number(tensor.grad_fn))

    @_ours()
    def before_unscale(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        state = self._state(optimizer)
        if state is not None and state.reading is None and scaler.is_enabled():
            self.reader.read(state, optimizer, scaler)

    def before_step(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        state = self._begin(optimizer)
        if state is not None:
            self._begin_scaled(state, scaler, optimizer)

    @_ours()
    def _begin_scaled(
        self, state: OptimizerState, scaler: GradScaler, optimizer: Optimizer
    ) -> None:
        self.scaler = scaler
        state.in_scaler = True
        state.ran = False
        if state.reading is None:
            self.reader.read(state, optimizer, scaler if scaler.is_enabled() else None)

    @_ours()
    def after_step(self, scaler: GradScaler, optimizer: Optimizer, failed: bool) -> None:
        state = self._states.get(id(optimizer))
        if state is None:
            return
        if failed:
            state.forget()
        else:
            self._emit(state, optimizer, scaler)
        state.in_scaler = False

    @_ours(fallback=1)
    def before_update(self, scaler: GradScaler, new_scale: Any) -> Any:
        static = self.knobs.static_scale
        if static is None or scaler is not self.scaler:
            return new_scale
        if new_scale is not None:
            self.knobs.static_scale = float(new_scale)
            return new_scale
        return static

    def after_update(self, scaler: GradScaler) -> None:
        self._updates = True
        if self._boundary_due:
            self._boundary()

    # -- what torch calls -----------------------------------------------------------------------

    @_ours(fallback=0)
    def _backward(self, roots: Roots) -> Roots:
        if active():
            self._facts.add("backward-in-autocast")
        known = [_comes_from(root, self._scaled) for root in roots]
        if all(known):
            return roots
        if self.scaler is not None and self.scaler.is_enabled():
            self._facts.add("unscaled-backward")
        fresh = [root for root, scaled in zip(roots, known, strict=True) if not scaled]
        self._add_losses([root for root in fresh if root.numel() == 1])
        gain = self.knobs.loss_gain
        if gain == 1.0:
            return roots
        return tuple(
            root if scaled else root * gain for root, scaled in zip(roots, known, strict=True)
        )

    @_ours()
    def _clipped(self, parameters: list[Tensor], max_norm: float, total: Tensor) -> None:
        ids = {id(parameter) for parameter in parameters}
        for state in self._states.values():
            if state.reading is not None:
                if any(id(parameter) in ids for parameter in state.parameters):
                    state.clips.append((ids, max_norm, total.detach()))
            elif self.scaler is not None and self.scaler.is_enabled():
                optimizer = state.ref()
                if optimizer is not None and any(id(p) in ids for p in trained(optimizer)):
                    self._facts.add("clip-while-scaled")

    def _before_optimizer(self, optimizer: Optimizer, closure: bool) -> None:
        known = self._states.get(id(optimizer))
        if known is not None and known.in_scaler:
            known.ran = True
            self._note_autocast()
            return
        state = self._begin(optimizer)
        if state is not None:
            self._begin_direct(state, optimizer, closure)

    @_ours()
    def _begin_direct(self, state: OptimizerState, optimizer: Optimizer, closure: bool) -> None:
        state.ran = True
        if active():
            self._facts.add("step-in-autocast")
        if not closure and state.reading is None:
            self.reader.read(state, optimizer, self._scaler_outside())

    @_ours()
    def _note_autocast(self) -> None:
        if active():
            self._facts.add("step-in-autocast")

    def _after_optimizer(self, optimizer: Optimizer, closure: bool) -> None:
        state = self._states.get(id(optimizer))
        if state is None or state.in_scaler:
            return
        self._end_direct(state, optimizer)
        if self._boundary_due and not self._updates:
            self._boundary()

    @_ours()
    def _end_direct(self, state: OptimizerState, optimizer: Optimizer) -> None:
        scaler = self._scaler_outside()
        if state.reading is None:  # a closure has made the gradients only now
            self.reader.read(state, optimizer, scaler)
        if scaler is not None:
            self._facts.add("step-outside-scaler")
        self._emit(state, optimizer, None)

    # -- inside ---------------------------------------------------------------------------------

    def _scaler_outside(self) -> GradScaler | None:
        """The scaler whose scale is in the gradients of a step that goes past it."""
        scaler = self.scaler
        return scaler if scaler is not None and scaler.is_enabled() and self._scaled else None

    def _begin(self, optimizer: Optimizer) -> OptimizerState | None:
        """A step begins; the boundary of the one before is here when no update() was one."""
        state = self._state(optimizer)
        if state is not None and self._boundary_due and self.reader.has_stepped(optimizer):
            self._boundary()
        return state

    @_ours()
    def _state(self, optimizer: Optimizer) -> OptimizerState | None:
        key = id(optimizer)
        state = self._states.get(key)
        if state is not None and state.ref() is optimizer:
            return state
        if key in self._foreign and state is None:
            return None
        if not self._any_optimizer and self._own.isdisjoint(map(id, trained(optimizer))):
            self._foreign.add(key)
            return None
        kind = type(optimizer).__name__
        same = sum(
            other.label.split(" ")[0] == kind
            for other in self._states.values()
            if other.ref() is not None
        )
        state = OptimizerState(optimizer, kind if same == 0 else f"{kind} {same + 1}")
        self._states[key] = state
        self._told = None
        return state

    @_ours()
    def _adopt(self, scaler: GradScaler) -> None:
        """Listen to a scaler; a script may make a new one at any time."""
        listen(scaler, self)
        self._scalers = [ref for ref in self._scalers if ref() is not None]
        self._scalers.append(weakref.ref(scaler))
        if self.scaler is None or self._any_optimizer:
            self.scaler = scaler
            for request in self.host.initial:
                self.knobs.start(request)

    def _add_losses(self, losses: Sequence[Tensor]) -> None:
        if self._losses_told:
            self._losses.clear()
            self._losses_told = False
        if self._graphs < GRAPHS_READ and losses:
            self._graphs += 1
            self._parameters.learn_order(losses)
        for loss in losses:
            value = loss.detach()
            self._losses.append(value if value.numel() == 1 else value.float().mean())

    def _emit(self, state: OptimizerState, optimizer: Optimizer, scaler: GradScaler | None) -> None:
        if state.reading is None:
            return
        self._tell(state)
        around = {
            "time": self.host.time(),
            "dtype": self.autocast.dtype(),
            "scaler": self.knobs.scaler_mode(),
            "target_gain": self.knobs.target_gain,
            "loss_gain": self.knobs.loss_gain,
            "facts": tuple(sorted(self._facts)),
            "metrics": self._metrics,
            "late": tuple(self._late),
        }
        self._facts.clear()
        late, self._late, self._metrics = list(self._late.values()), {}, {}
        self._losses_told = True
        self._boundary_due = True
        self.host.last_step = max(self.host.last_step, self.reader.step)
        losses = list(self._losses)
        self.reader.emit(state, optimizer, scaler, losses, late, around, self.host.waited)
        self._scaled.clear()

    def _tell(self, state: OptimizerState) -> None:
        """Say what the run is, as often as that changes."""
        mode = self.knobs.scaler_mode()
        told = (len(state.parameters), state.label, mode, self._total, id(self.scaler))
        if self._told is not None and self._told == told:
            return
        several = len([1 for other in self._states.values() if other.ref() is not None]) > 1
        if several and self._told is not None and self._told[2:] == told[2:]:
            return
        self._told = told
        if self._any_optimizer:
            for model in self._models.owners(state.parameters):
                self._parameters.add_model(model)
            self._models.close()
        everything = [
            parameter
            for other in self._states.values()
            if (optimizer := other.ref()) is not None
            for parameter in trained(optimizer)
        ]
        order = self._parameters.backward_order(everything)
        device = everything[0].device if everything else None
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.host.describe(
            torch=str(torch.__version__),
            device=None if device is None else str(device),
            rank=torch.distributed.get_rank() if distributed else 0,
            world_size=torch.distributed.get_world_size() if distributed else 1,
            parameters=sum(parameter.numel() for parameter in everything),
            tensors=tuple(self._parameters.name(everything[i], 0, i) for i in order),
            scaler=None if self.scaler is None or mode is None else describe(self.scaler, mode),
            total_steps=self._total,
        )

    def _take(self, record: StepRecord | TensorStats) -> None:
        self.host.put(record)
        if isinstance(record, StepRecord):
            self._tally.add(record)

    def _boundary(self) -> None:
        self._boundary_due = False
        if not self.closed:
            self.reader.flush(wait=False)
            self.host.boundary(self._turn)

    def _turn(self, request: Any) -> Notice | None:
        try:
            return self.knobs.turn(request)
        except Exception as error:
            return Notice(f"that did not work: {error}", request.knob, None, refused=True)

    def _detach(self, error: Exception) -> None:
        """We have failed: say so once, and leave the loop alone from now on."""
        with contextlib.suppress(Exception):
            self._undo()
        kind = type(error).__name__
        self.host.say(f"ampwatch stopped watching, training goes on: {kind}: {error}")

    def overlaps(
        self,
        models: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        scaler: GradScaler | None,
    ) -> bool:
        """Whether it watches every optimizer there is, or any of these already."""
        return (
            self._any_optimizer
            or any(self._parameters.holds(model) for model in models)
            or any(not self._own.isdisjoint(map(id, trained(each))) for each in optimizers)
            or (scaler is not None and any(ref() is scaler for ref in self._given))
        )

    def _undo(self) -> None:
        self.closed = True
        _open.discard(self)
        for part in reversed(self._parts):
            part.close()
        self._models.close()
        for ref in self._scalers:
            scaler = ref()
            if scaler is not None:
                unlisten(scaler)
        self._scalers.clear()
        self._losses.clear()
        self._states.clear()


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
        budget: share of the step time that the expensive probes may take.
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
    for other in list(_open):
        if other.overlaps(models, optimizers, scaler):
            other.close()  # attaching again replaces what was attached
    host = hosts.current()
    if host is not None:
        if name is not None:
            host.describe(name=name)
        return Watch(models, optimizers, scaler, host, budget, owns_host=False)
    host = hosts.outside(log or os.environ.get("AMPWATCH_LOG"), name)
    return Watch(models, optimizers, scaler, host, budget, owns_host=True)


def _listed(given: T | Sequence[T] | None) -> list[T]:
    if given is None:
        return []
    if isinstance(given, (list, tuple)):
        return list(given)
    return [given]  # type: ignore[list-item]


def _multiplied(outputs: Any, gain: float) -> Any:
    """What is handed to ``scale``, times ``gain``; an iterator is left as it is."""
    if isinstance(outputs, Tensor):
        return outputs * gain
    if isinstance(outputs, (list, tuple)):
        return type(outputs)(_multiplied(item, gain) for item in outputs)
    return outputs


def _comes_from(root: Tensor, scaled: set[int]) -> bool:
    """Whether a scaled loss is in the graph of ``root``, itself or a few operations before it."""
    if root.grad_fn is None or not scaled:
        return False
    nodes = [root.grad_fn]
    for node in itertools.islice(nodes, GRAPH_SEARCH_NODES):  # grows while it is gone through
        if private.sequence_number(node) in scaled:
            return True
        nodes.extend(child for child, _ in node.next_functions if child is not None)
    return False


@atexit.register
def _close_open() -> None:
    """A script that ends without closing its hook still gets the last line of its log."""
    error = getattr(sys, "last_value", None)
    for watch in list(_open):
        if error is None:
            watch.close()
        elif isinstance(error, KeyboardInterrupt):
            watch.close("stopped")
        else:
            watch.close("failed", f"{type(error).__name__}: {error}")
