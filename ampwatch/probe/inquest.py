"""Where inf or NaN in a loss came from, read off the graph of that very loss.

A graph keeps what backward needs: inputs or results of most operations, in the order in which
they were computed. So at a loss that is not finite, and before backward frees the graph, the
first operation can be found whose result is not finite although its inputs are. That needs no
hook on any module, costs nothing on a step that is all right, and works on the first occurrence.

Nothing is read while saved tensors are packed by somebody (activation checkpointing, offloading):
to unpack them would run the forward pass again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ampwatch.probe import verdicts
from ampwatch.probe.private import saved_tensors, sequence_number
from ampwatch.probe.verdicts import Operation

MOST_NODES = 20_000
"""A walk over the graph of a very large model stops here, at the operations nearest the loss."""


Naming = Callable[[list[Tensor]], list[str]]


def inquire(roots: list[Tensor], names: Naming) -> str | None:
    """The fact that tells where inf or NaN in these losses came from, if the graph shows it.

    Args:
        names: of parameters, as the user's code has them; "" where it has none.
    """
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        operations = _operations(roots, names)
        for operation in operations:
            if not operation.finite():
                found = verdicts.judge(operation)
                if found is not None:
                    return found
        for root in roots:
            if not bool(torch.isfinite(root).all()):
                last = next((o for o in operations if o.node is root.grad_fn), None)
                if last is not None and last.title == "Mul" and len(operations) > 1:
                    last = last.source() or last  # times the scale
                if last is not None:
                    return verdicts.of_result(verdicts.in_chain(last), root.detach())
    return None


def _operations(roots: list[Tensor], names: Naming) -> list[Operation]:
    """All of them, in the order in which they were computed."""
    stack = [root.grad_fn for root in roots if root.grad_fn is not None]
    known: dict[Any, Operation] = {}
    while stack and len(known) < MOST_NODES:
        node = stack.pop()
        if node in known:
            continue
        known[node] = Operation(node, _title(node), sequence_number(node), saved_tensors(node))
        stack.extend(child for child, _ in node.next_functions if child is not None)
    variables = [
        variable for node in known if (variable := getattr(node, "variable", None)) is not None
    ]
    name_of = dict(zip(map(id, variables), names(variables), strict=True))
    for operation in known.values():
        operation.parents = [known.get(child) for child, _ in operation.node.next_functions]
        for parent in operation.parents:
            variable = None if parent is None else getattr(parent.node, "variable", None)
            if variable is not None:
                operation.parameters.append((name_of[id(variable)], variable.detach()))
    order = sorted(
        (o for o in known.values() if getattr(o.node, "variable", None) is None),
        key=lambda operation: operation.number,
    )
    module = None
    for operation in order:
        own = [parameter.rpartition(".")[0] for parameter, _ in operation.weights()]
        if any(own):
            module = operation.module = next(each for each in own if each)
        elif operation.title not in verdicts.PASSING:
            operation.after = module
    return order


def _title(node: Any) -> str:
    """div of DivBackward0."""
    text = str(node.name()).split("::")[-1]
    return text.partition("Backward")[0]
