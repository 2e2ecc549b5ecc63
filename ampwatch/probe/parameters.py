"""The names of parameters, as the user's code has them, in backward order."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ampwatch.probe.private import sequence_number

GRAPH_NODES = 200_000
"""A walk over the graph of a very large model stops here; what is left keeps its module order."""
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""What torch.compile, FSDP and activation checkpointing put in front of a module's own names."""


class Parameters:
    """Names and backward ranks of the parameters of some models.

    The models are only referred to weakly: watching must not keep them alive.
    """

    def __init__(self) -> None:
        self._models: list[weakref.ref[nn.Module]] = []
        self._names: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self._place: dict[int, int] = {}
        self._made: dict[int, int] = {}

    def add_models(self, models: Iterable[nn.Module]) -> None:
        """Take the names of their parameters; of several models with the model's own in front."""
        fresh = [model for model in models if not self.holds(model)]
        if fresh:
            self._models += map(weakref.ref, fresh)
            self._learn()

    def holds(self, model: nn.Module) -> bool:
        return any(ref() is model for ref in self._models)

    def models(self) -> list[nn.Module]:
        """Those that are still there."""
        return [model for ref in self._models if (model := ref()) is not None]

    def ids(self) -> set[int]:
        """ids of what the models hold now: layers may have been added."""
        return {
            id(parameter)
            for ref in self._models
            if (model := ref()) is not None
            for parameter in model.parameters()
        }

    def module_names(self) -> dict[int, str]:
        """The names of all modules by id; a model itself goes by its class."""
        alive = self.models()
        found: dict[int, str] = {}
        for model in alive:
            prefix = f"{_model_name(model, alive)}." if len(alive) > 1 else ""
            for name, module in model.named_modules():
                plain = prefix + plain_name(model, f"{name}.")
                found.setdefault(id(module), plain.strip(".") or type(model).__name__)
        return found

    def _learn(self) -> None:
        alive = [model for ref in self._models if (model := ref()) is not None]
        for model in alive:
            prefix = f"{_model_name(model, alive)}." if len(alive) > 1 else ""
            for name, parameter in model.named_parameters():
                if self._known(parameter) is None:
                    self._name(parameter, prefix + plain_name(model, name))
                    self._place[id(parameter)] = len(self._place)

    def _known(self, parameter: Tensor) -> str | None:
        # A parameter that is gone may have left its id to another one.
        ref, name = self._names.get(id(parameter), (None, None))
        return name if ref is not None and ref() is parameter else None

    def _name(self, parameter: Tensor, name: str) -> str:
        self._names[id(parameter)] = (weakref.ref(parameter), name)
        return name

    def known(self, parameter: Tensor) -> str:
        """Its name in a watched model; "" where it has none, or none yet."""
        return self._known(parameter) or ""

    def name(self, parameter: Tensor, group: int, position: int) -> str:
        """Its name in a watched model, or its place in the optimizer."""
        name = self._known(parameter)
        if name is None:
            self._learn()  # a layer may have been added since
            name = self._known(parameter)
        return name or self._name(parameter, f"group{group}.param{position}")

    def backward_order(self, parameters: Sequence[Tensor]) -> list[int]:
        """Indices into ``parameters``, the one whose gradient is computed first in front.

        Parameters that were in a graph come in its order; before one has been seen, the last
        defined is taken to be nearest the loss.
        """

        def rank(index: int) -> tuple[int, int]:
            known = id(parameters[index])
            if known in self._made:
                return (0, -self._made[known])
            return (1, -self._place[known]) if known in self._place else (2, -index)

        return sorted(range(len(parameters)), key=rank)

    def learn_order(self, losses: Iterable[Tensor]) -> set[int]:
        """Read the order of gradients off the graph of the losses; ids of what they depend on.

        Autograd runs the nodes that were made last first, so the parameters used by the latest
        operation get their gradients first (torch's notes on autograd mechanics).
        """
        stack = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
        seen = set(stack)
        made: dict[int, int] = {}
        while stack and len(seen) < GRAPH_NODES:
            node = stack.pop()
            number = sequence_number(node)
            for child, _ in node.next_functions:
                if child is None:
                    continue
                variable = getattr(child, "variable", None)
                if variable is not None:
                    # A shared parameter has its gradient from its latest use first.
                    made[id(variable)] = max(made.get(id(variable), -1), number)
                elif child not in seen:
                    seen.add(child)
                    stack.append(child)
        self._made.update(made)
        return set(made)


def plain_name(model: nn.Module, name: str) -> str:
    """Its name in the user's own model, without what wrappers put into it."""
    if isinstance(model, (DistributedDataParallel, nn.DataParallel)):
        name = name.removeprefix("module.")
    for part in WRAPPERS:
        name = name.replace(part, "")
    return name


def _model_name(model: nn.Module, models: list[nn.Module]) -> str:
    """A name that tells several models apart: the class, with a number where it repeats."""
    kind = type(model).__name__
    same = [other for other in models if type(other).__name__ == kind]
    return kind if len(same) == 1 else f"{kind}{same.index(model)}"


def trained(optimizer: Optimizer) -> list[Tensor]:
    """All parameters an optimizer holds, in its own order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
