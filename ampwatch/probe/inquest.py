"""Where inf or NaN in a loss came from, read off the graph of that very loss.

A graph keeps what backward needs: inputs or results of most operations, in the order in which
they were computed. So at a loss that is not finite, and before backward frees the graph, the
first operation can be found whose result is not finite although its inputs are. That needs no
hook on any module, costs nothing on a step that is all right, and works on the first occurrence.

Nothing is read while saved tensors are packed by somebody (activation checkpointing, offloading):
to unpack them would run the forward pass again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ampwatch.probe import verdicts
from ampwatch.probe.operations import Naming, Operation, fine, operations_of


def inquire(roots: list[Tensor], names: Naming) -> str | None:
    """The fact that tells where inf or NaN in these losses came from, if the graph shows it."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        operations = operations_of(roots, names)
        factor = None
        for operation in operations:
            if not operation.finite():
                found = verdicts.judge(operation)
                if found is not None and not found.startswith(verdicts.FACTOR):
                    return found
                factor = factor or found
        if factor is not None:
            return factor
        for root in roots:
            if not bool(torch.isfinite(root).all()):
                last = next((o for o in operations if o.node is root.grad_fn), None)
                if last is not None and last.title == "Mul" and len(operations) > 1:
                    last = last.source() or last  # times the scale
                if last is not None and any(map(_holds_mask, operations)):
                    return verdicts.of_mask(last, root.detach())
                if last is not None:
                    return verdicts.of_result(verdicts.in_chain(last), root.detach())
    return None


def _holds_mask(operation: Operation) -> bool:
    return any(
        not fine(each) and verdicts.masked_out(operation, each)
        for each in operation.results().values()
    )
