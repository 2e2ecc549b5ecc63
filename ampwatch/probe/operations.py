"""The operations of a forward pass, read off the graph that it left for backward.

A graph knows nothing of modules. But an operation that uses parameters belongs to the module that
holds them, and what is computed next comes after that module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from ampwatch.probe.private import made_in, saved_tensors, sequence_number
from ampwatch.probe.values import MOST_AT_ONCE, Question, Values

RESULTS = ("result", "result0", "output", "out")
"""Under these names an operation keeps what it has made; under others what it was given."""
PASSING = (
    "ToCopy", "T", "View", "UnsafeView", "Expand", "Transpose", "Permute", "Reshape", "Alias",
    "Unsqueeze", "Squeeze", "Clone", "ReshapeAlias", "Slice", "Select",
    "_DDPSink", "RegisterPostBackwardFunction",
)  # fmt: skip
"""They move values about and make none."""
MOST_NODES = 20_000
"""A walk over the graph of a very large model stops here, at the operations nearest the loss."""

PRODUCTS = ("Mm", "Addmm", "Bmm", "Baddbmm", "Convolution", "Mv", "Addmv", "Dot")
"""Sums of products."""
LEAF = "AccumulateGrad"
GIVEN = "(given)"
"""In place of the name of a parameter: data whose gradient is wanted too."""
SETTINGS = ("exponent", "min", "eps", "self_numel")
Naming = Callable[[list[Tensor]], list[str]]
"""Names of parameters, as the user's code has them; "" where it has none."""


@dataclass(eq=False)
class Operation:
    """One node of the graph, with what it keeps."""

    node: Any
    title: str
    number: int
    saved: dict[str, Values]
    opaque: bool = False
    """A function of the script's own, or compiled code: what it was given is not seen."""
    variable: Values | None = None
    """Of a leaf: a parameter, or what else gets a gradient."""
    given: bool = False
    """Of a leaf: whether it is data."""
    parents: list[Operation | None] = field(default_factory=list)
    parameters: list[tuple[str, Values]] = field(default_factory=list)
    module: str | None = None
    """The module whose parameters it uses."""
    after: str | None = None
    """The module whose output it got; where it got none, the one that was used last before it."""
    _settings: dict[str, Any] = field(default_factory=dict)
    _weights: list[tuple[str, Values]] | None = None
    """Kept: asked in the order of the forward pass, a long chain of views is not walked again."""

    @cached_property
    def dtype(self) -> torch.dtype | None:
        """Of what it has made."""
        return made_in(self.node)

    def setting(self, name: str) -> Any:
        """What it keeps beside the values: a limit, an exponent, as a number or as values."""
        if name not in self._settings:
            try:
                kept = getattr(self.node, f"_saved_{name}", None)
            except RuntimeError:  # freed, or changed in place since
                kept = None
            self._settings[name] = Values(kept) if isinstance(kept, Tensor) else kept
        return self._settings[name]

    @cached_property
    def power(self) -> Question | None:
        """Whether a power of these values is a number at all: no broken one of a negative."""
        base, exponent = self.saved.get("self"), self.setting("exponent")
        if base is None or exponent is None:
            return None
        values = base.tensor
        by: Any = exponent.tensor if isinstance(exponent, Values) else exponent
        assert values is not None
        return Question(lambda: torch.isfinite(torch.pow(values.double(), by)).all(), 1.0)

    @property
    def multiplies(self) -> bool:
        """Whether it keeps two batches of matrices, whose product it has made."""
        left, right = self.saved.get("self"), self.saved.get("mat2")
        return left is not None and right is not None and left.rank == right.rank == 3

    @cached_property
    def product(self) -> Question:
        """The largest magnitude in the product of what it :attr:`multiplies`."""
        left, right = self.saved["self"].tensor, self.saved["mat2"].tensor
        assert left is not None
        assert right is not None
        return Question(lambda: _largest_product(left, right))

    def let_go(self) -> None:
        """Keep nothing of the graph alive; everything has been asked."""
        _ = self.dtype, [self.setting(name) for name in SETTINGS]
        kept = [*self.saved.values(), *self._settings.values(), self.variable]
        for values in kept:
            if isinstance(values, Values):
                values.tensor = None
        self.node = None

    def finite(self) -> bool:
        """Whether nothing that it keeps is inf or NaN."""
        return all(values.finite for values in self.saved.values())

    def weights(self) -> list[tuple[str, Values]]:
        """Parameters that come in directly or through a cast or a transposition."""
        if self._weights is None:
            self._weights = list(self.parameters)
            for parent in self.parents:
                if parent is not None and parent.title in PASSING:
                    self._weights += parent.weights()
        return self._weights

    def inputs(self) -> dict[str, Values]:
        return {name: each for name, each in self.saved.items() if name not in RESULTS}

    def results(self) -> dict[str, Values]:
        return {name: each for name, each in self.saved.items() if name in RESULTS}

    def source(self) -> Operation | None:
        """The operation that made its first input, past casts and views."""
        parent = next((each for each in self.parents if each is not None), None)
        return parent.itself() if parent is not None else None

    def words(self) -> str:
        """Its title as the function is called: native_layer_norm, div."""
        title = self.title
        return (
            "".join(f" {c.lower()}" if c.isupper() else c for c in title).strip().replace(" ", "_")
        )

    def itself(self) -> Operation | None:
        """The same, or what it passes on."""
        operation: Operation | None = self
        while operation is not None and operation.title in PASSING:
            operation = next((each for each in operation.parents if each is not None), None)
        return operation


def _largest_product(left: Tensor, right: Tensor) -> Tensor:
    """In pieces: scores of attention are the largest thing in a model."""
    piece = max(1, MOST_AT_ONCE // (left.shape[1] * right.shape[2]))
    pieces = zip(torch.split(left, piece), torch.split(right, piece), strict=True)
    return torch.stack([torch.bmm(a.float(), b.float()).abs_().amax() for a, b in pieces]).amax()


def operations_of(roots: list[Tensor], names: Naming, *, saved: bool = True) -> list[Operation]:
    """All of them, in the order in which they were computed.

    Args:
        names: of parameters.
        saved: whether to read what they keep: not while somebody packs it.
    """
    stack = [root.grad_fn for root in roots if root.grad_fn is not None]
    known: dict[Any, Operation] = {}
    variables: list[tuple[Operation, Tensor]] = []
    while stack and len(known) < MOST_NODES:
        node = stack.pop()
        if node in known:
            continue
        kept = saved_tensors(node) if saved else {}
        values = {name: Values(tensor) for name, tensor in kept.items()}
        title = _title(node)
        opaque = isinstance(node, BackwardCFunction) and title not in PASSING
        operation = Operation(node, title, sequence_number(node), values, opaque)
        # A function of the script's own may keep anything under this name.
        variable = getattr(node, "variable", None) if title == LEAF else None
        if variable is not None:
            operation.variable = Values(variable)
            variables.append((operation, variable))
        known[node] = operation
        stack.extend(child for child, _ in node.next_functions if child is not None)
    named = names([variable for _, variable in variables])
    name_of = {leaf: name for (leaf, _), name in zip(variables, named, strict=True)}
    for leaf, variable in variables:
        if type(variable) is Tensor and not name_of[leaf]:
            name_of[leaf] = GIVEN
    for operation in known.values():
        operation.parents = [known.get(child) for child, _ in operation.node.next_functions]
        for parent in operation.parents:
            if parent is not None and parent.variable is not None:
                parent.given = name_of[parent] == GIVEN
                operation.parameters.append((name_of[parent], parent.variable))
    order = sorted(
        (o for o in known.values() if o.variable is None), key=lambda operation: operation.number
    )
    latest: tuple[int, str | None] = (-1, None)
    through: dict[int, tuple[int, str | None]] = {}
    for operation in order:
        own = [parameter.rpartition(".")[0] for parameter, _ in operation.weights()]
        if any(own):
            operation.module = next(each for each in own if each)
            latest = (operation.number, operation.module)
            through[id(operation)] = latest
            continue
        came = max(
            (through[id(each)] for each in operation.parents if id(each) in through),
            default=None,
            key=lambda entry: entry[0],
        )
        if came is not None:
            through[id(operation)] = came
        operation.after = (came or latest)[1]
    return order


def _title(node: Any) -> str:
    """div of DivBackward0."""
    text = str(node.name()).split("::")[-1]
    return text.partition("Backward")[0]
