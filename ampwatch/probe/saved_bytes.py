"""What a step keeps in memory for its backward pass, counted exactly, and a device's own figure.

Autograd keeps inputs and results of operations until backward has used them: besides the weights
that is most of what a training step needs, and a smaller format makes it smaller. It is read off
the graph of the loss right before backward frees it, so no hook changes how the graph is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ampwatch.guard import Guard, guarded
from ampwatch.host import Host
from ampwatch.probe.backward import BackwardWatch, Roots
from ampwatch.probe.packing import PackingWatch
from ampwatch.probe.parameters import Parameters
from ampwatch.probe.private import kept_tensors
from ampwatch.record.memory import PEAK_BYTES, SAVED_BYTES

if TYPE_CHECKING:
    from ampwatch.recorder import Recorder

MOST_NODES = 200_000
"""The graph of a very large model is not counted beyond so many operations, and then not told."""

Place = tuple[str, int]
"""Device and address: two tensors with the same are views of one storage."""


def saved_bytes(roots: Sequence[Tensor], models: Iterable[nn.Module] = ()) -> int | None:
    """Bytes that the graphs of these tensors keep for backward.

    Each storage counts once and as a whole, however many views of it are kept. Parameters and
    buffers do not count: they are there anyway. Low-precision copies of them do.

    Args:
        roots: what a backward pass is about to start from.
        models: whose parameters and buffers are left out, besides the leaves of the graphs.

    Returns:
        None for a graph that is too large to be walked.
    """
    known: set[Any] = set()
    stack = [root.grad_fn for root in roots if root.grad_fn is not None]
    kept: dict[Place, int] = {}
    present: dict[Place, int] = {}
    while stack:
        node = stack.pop()
        if node in known:
            continue
        known.add(node)
        if len(known) > MOST_NODES:
            return None
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            present.update(_storages(variable))
            continue
        for tensor in kept_tensors(node):
            kept.update(_storages(tensor))
        stack.extend(child for child, _ in node.next_functions if child is not None)
    for model in models:
        for tensor in (*model.parameters(), *model.buffers()):
            present.update(_storages(tensor))
    return sum(size for place, size in kept.items() if place not in present)


def _storages(tensor: Tensor) -> Iterator[tuple[Place, int]]:
    """Where a tensor's values lie, and how many bytes are held there."""
    if hasattr(tensor, "to_local"):  # a DTensor: this process has a part of it
        tensor = tensor.to_local()
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.detach().coalesce()
        yield from _storages(tensor.indices())
        yield from _storages(tensor.values())
    elif tensor.layout is torch.strided:
        storage = tensor.untyped_storage()
        if storage.nbytes():
            yield (str(tensor.device), storage.data_ptr()), storage.nbytes()


class MemoryWatch:
    """Tells, at the first step after each pause, what that step keeps: never at a step that is
    timed.

    Args:
        packing: whether what graphs keep is packed by somebody: then it cannot be counted.
        recorder: takes the figures, as metrics of the step.
    """

    def __init__(
        self,
        guard: Guard,
        host: Host,
        names: Parameters,
        packing: PackingWatch,
        recorder: Recorder,
    ) -> None:
        self.guard = guard
        self._host = host
        self._names = names
        self._packing = packing
        self._recorder = recorder
        self._watch = BackwardWatch(self.before_backward)

    def open(self) -> None:
        self._watch.open()

    def close(self) -> None:
        self._watch.close()

    def before_backward(self, roots: Roots) -> Roots:
        if self._host.resumed:
            self._measure([root for root in roots if isinstance(root, Tensor)])
        return roots

    @guarded()
    def _measure(self, roots: list[Tensor]) -> None:
        metrics = self._recorder.metrics
        if not self._packing.seen:
            saved = saved_bytes(roots, self._names.models())
            if saved is not None:
                # Of several passes in one step (accumulation) the largest: one frees the next's.
                metrics[SAVED_BYTES] = max(float(saved), metrics.get(SAVED_BYTES, 0.0))
        device = next((root.device for root in roots if root.device.type == "cuda"), None)
        if device is not None:
            metrics[PEAK_BYTES] = float(torch.cuda.max_memory_allocated(device))
