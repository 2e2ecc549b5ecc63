"""Where inf or NaN in a loss came from, read off the graph of that very loss.

A graph keeps what backward needs: inputs or results of most operations, in the order in which
they were computed. So at a loss that is not finite, and before backward frees the graph, the
first operation can be found whose result is not finite although its inputs are. That needs no
hook on any module, costs nothing on a step that is all right, and works on the first occurrence.

Nothing is read while saved tensors are packed by somebody (activation checkpointing, offloading):
to unpack them would run the forward pass again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from ampwatch.probe import verdicts
from ampwatch.probe.operations import Naming, Operation, operations_of
from ampwatch.probe.values import Values


def inquire(roots: list[Tensor], names: Naming) -> str | None:
    """The fact that tells where inf or NaN in these losses came from, if the graph shows it."""
    with plainly(roots):
        return Inquest(roots, names).verdict()


class Inquest:
    """The operations that made some losses, to be judged.

    Args:
        roots: the losses, as they are back-propagated.
        names: of parameters.

    Attributes:
        roots: each with the operation that made it.
    """

    def __init__(self, roots: list[Tensor], names: Naming) -> None:
        self.operations = operations_of(roots, names)
        last = {operation.node: operation for operation in self.operations}
        self.roots = [(Values(root), last.get(root.grad_fn)) for root in roots]

    def verdict(self) -> str | None:
        """What the first operation with inf or NaN in it says of the cause."""
        found = self._verdict()
        return None if found == verdicts.UNSEEN else found

    def _verdict(self) -> str | None:
        operations = self.operations
        factor = None
        for operation in operations:
            if not operation.finite():
                found = verdicts.judge(operation)
                if found is not None and not found.startswith(verdicts.FACTOR):
                    return found
                factor = factor or found
        if factor is not None:
            return factor
        for root, last in self.roots:
            if not root.finite and last is not None:
                if last.title == "Mul" and len(operations) > 1:
                    last = last.source() or last  # times the scale
                if any(map(_holds_mask, operations)):
                    return verdicts.of_mask(last, root)
                return verdicts.of_result(verdicts.in_chain(last), root)
        return None


@contextlib.contextmanager
def plainly(roots: list[Tensor]) -> Iterator[None]:
    """Without a graph of our own, and without autocast."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for kind in {"cpu", roots[0].device.type}:
            if torch.amp.is_autocast_available(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _holds_mask(operation: Operation) -> bool:
    return any(
        not each.finite and verdicts.masked_out(operation, each)
        for each in operation.results().values()
    )
