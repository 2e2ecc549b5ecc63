"""The operations of one forward pass, as the script's code calls them, and the gradients that
come back to their results.

A function mode sees ``F.linear(float32, float32) → float16``, as a reader of the script would put
it: beneath it autocast has cast the inputs. Hooks on all modules tell where an operation was
called, and a hook on each result tells what came back to it. All of that is there from the first
module that is called until the first backward pass, and for one step only.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _modules

from ampwatch.probe.anatomy_values import Extent, extent
from ampwatch.probe.calls import CallWatch
from ampwatch.probe.dtypes import dtype_name
from ampwatch.record import Operation
from ampwatch.record.anatomy import MOST_OPERATIONS

MOST_DTYPES = 8
"""``torch.cat`` may take a hundred tensors."""
MOVING = frozenset(
    [
        "view",
        "reshape",
        "transpose",
        "permute",
        "t",
        "T",
        "mT",
        "H",
        "expand",
        "expand_as",
        "unsqueeze",
        "squeeze",
        "flatten",
        "unflatten",
        "contiguous",
        "detach",
        "clone",
        "getitem",
        "setitem",
        "chunk",
        "split",
        "unbind",
        "select",
        "narrow",
        "movedim",
        "swapaxes",
        "view_as",
        "roll",
        "flip",
        "repeat",
        "repeat_interleave",
        "index_select",
        "gather",
        "requires_grad_",
        "data",
        "grad",
        "real",
        "zero_",
        "copy_",
        "fill_",
        "get",
        "set",
        "alias",
    ]
)
"""They move values about, or put some in, and compute none."""
CASTS = frozenset(["to", "float", "half", "bfloat16", "double", "type", "type_as", "cpu", "cuda"])
"""These are told only where the dtype changes."""


class _Row:
    """An operation, until the gradient of its result has come."""

    __slots__ = ("back", "gradient", "inputs", "made", "module", "name", "output", "weights")

    def __init__(
        self, name: str, module: str | None, inputs: list[str], weights: list[str], output: Tensor
    ) -> None:
        self.name = name
        self.module = module
        self.inputs = tuple(inputs[:MOST_DTYPES])
        self.weights = tuple(weights[:MOST_DTYPES])
        self.output = dtype_name(output.dtype)
        self.made = extent(output)
        self.gradient: str | None = None
        self.back: Extent | None = None

    def operation(self) -> Operation:
        made, back = self.made, self.back
        return Operation(
            self.name,
            self.module,
            self.inputs,
            self.weights,
            self.output,
            None if made is None else made.largest,
            None if made is None else made.nonfinite,
            None if made is None else made.size,
            self.gradient,
            None if back is None else back.largest,
            None if back is None else back.nonfinite,
        )


class ForwardPass:
    """Sees one forward pass.

    Args:
        modules: names by the ids of the modules; without any, the script's code is functions
            alone, and operations are seen at once.
        parameters: ids of what is trained.
        failed: is told of the first error of ours; nothing is seen after it.
    """

    def __init__(
        self, modules: dict[int, str], parameters: set[int], failed: Callable[[Exception], None]
    ) -> None:
        self.left_out = 0
        self.broken = False
        """The forward pass was left by an error."""
        self._names = modules
        self._parameters = parameters
        self._failed = failed
        self._thread = threading.get_ident()
        self._rows: list[_Row] = []
        self._inside: list[nn.Module] = []
        self._handles: list[Any] = []
        self._calls: CallWatch | None = None
        self._latest: tuple[str, int] | None = None
        """Name of the latest operation, and the id of its result."""
        self.closed = False

    def open(self) -> None:
        if not self._names:
            self._watch()
            return
        self._handles += [
            _modules.register_module_forward_pre_hook(self._enters),
            # Called after an error as well: nothing may stay behind when the loop throws.
            _modules.register_module_forward_hook(self._leaves, always_call=True),
        ]

    def forward_ends(self, root: Tensor | None) -> None:
        """A backward pass begins; what comes back is still listened to.

        Args:
            root: what it starts from, if that is a loss times the scale. To multiply by the scale
                is not part of the forward pass.
        """
        while self._handles:
            self._handles.pop().remove()
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()
        latest, self._latest = self._latest, None
        if root is not None and latest == ("mul", id(root)):
            if self.left_out:
                self.left_out -= 1
            else:
                self._rows.pop()
        self._inside.clear()

    def close(self) -> None:
        """Leave everything as it was found; any number of times."""
        self.closed = True
        self.forward_ends(None)

    def operations(self) -> tuple[Operation, ...]:
        """What was seen, with the gradients that have come back by now."""
        return tuple(row.operation() for row in self._rows)

    # -- modules --------------------------------------------------------------------------------

    def _ours(self) -> bool:
        return not self.closed and threading.get_ident() == self._thread

    def _enters(self, module: nn.Module, args: Any) -> None:
        if self._ours():
            self._inside.append(module)
            # An evaluation before the step is no part of it.
            if self._calls is None and torch.is_grad_enabled():
                self._watch()

    def _leaves(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self._ours() or not self._inside or self._inside[-1] is not module:
            return
        self._inside.pop()
        if not self._inside and output is None and sys.exc_info()[1] is not None:
            self.broken = True  # it raises: what comes now, if anything, is no part of this pass
            self.forward_ends(None)

    def _where(self) -> str | None:
        """The innermost module that has a name; else the class of the one that is called."""
        for module in reversed(self._inside):
            name = self._names.get(id(module))
            if name is not None:
                return name
        return type(self._inside[-1]).__name__ if self._inside else None

    # -- operations -----------------------------------------------------------------------------

    def _watch(self) -> None:
        self._calls = CallWatch(self._called)
        try:
            self._calls.open()
        except Exception as error:
            self._fail(error)

    def _called(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """The script's code has called something of torch's."""
        try:
            self._take(func, args, kwargs, result)
        except Exception as error:
            self._fail(error)

    def _take(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        output = next(_floating(result), None)
        if output is None or type(output) is not Tensor or not self._ours():
            return
        name = _name(func)
        if name in MOVING or not (self._inside or output.requires_grad):
            return
        inputs: list[str] = []
        weights: list[str] = []
        for tensor in _floating([*args, *kwargs.values()]):
            own = isinstance(tensor, nn.Parameter) or id(tensor) in self._parameters
            (weights if own else inputs).append(dtype_name(tensor.dtype))
        if not (inputs or weights):
            return  # torch.zeros and the like
        if name in CASTS and dtype_name(output.dtype) == (inputs + weights)[0]:
            return
        self._latest = name, id(output)
        if len(self._rows) >= MOST_OPERATIONS:
            self.left_out += 1
            return
        row = _Row(name, self._where(), inputs, weights, output)
        self._rows.append(row)
        if output.requires_grad and output.grad_fn is not None:
            with contextlib.suppress(RuntimeError):  # a view that cannot be told its own
                output.register_hook(self._listener(row))  # type: ignore[no-untyped-call]

    def _listener(self, row: _Row) -> Callable[[Tensor], None]:
        def came(gradient: Tensor) -> None:
            if self.closed or row.gradient is not None:
                return
            try:
                row.gradient = dtype_name(gradient.dtype)
                row.back = extent(gradient)
            except Exception as error:
                self._fail(error)

        return came

    def _fail(self, error: Exception) -> None:
        self.close()
        self._failed(error)


def _name(func: Any) -> str:
    name = str(getattr(func, "__name__", func))
    if name == "__get__":  # a property: x.T
        name = str(getattr(getattr(func, "__self__", None), "__name__", name))
    return name.strip("_") if name.startswith("__") else name.lstrip("_")


def _floating(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """The floating-point tensors in what a function was handed, or has made."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif depth < 2 and isinstance(value, (list, tuple)):
        for each in value:
            yield from _floating(each, depth + 1)
