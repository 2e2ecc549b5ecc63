"""Which operation of a backward pass was the first to make inf or NaN.

A skip beside a finite loss says that it was in backward, and no more. So at the next backward
passes each node of the graph is asked: were its gradients finite when they came in, and are they
not when they go out? Hooks on nodes change nothing and are gone with the pass.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ampwatch.probe.dtypes import dtype_name
from ampwatch.probe.gradients import dense
from ampwatch.probe.guards import guard_behind
from ampwatch.probe.node_hooks import Gradients, NodeHooks
from ampwatch.probe.operations import PRODUCTS, Naming, Operation, operations_of
from ampwatch.probe.packing import PackingWatch
from ampwatch.probe.private import compiled_autograd, saved_tensors
from ampwatch.probe.transfer import at_hand
from ampwatch.record.facts import fact

UNCHANGED = (
    "T", "View", "UnsafeView", "Transpose", "Permute", "Reshape", "Alias", "Unsqueeze", "Squeeze",
    "ReshapeAlias",
)  # fmt: skip
"""Their gradients have the values that came in."""
POLES = {
    "Sqrt": ("result",), "Rsqrt": ("result",), "Log": ("self",), "Log2": ("self",),
    "Log10": ("self",), "Pow": ("self",), "Reciprocal": ("result",), "Div": ("other",),
    "LinalgVectorNorm": ("result",), "Norm": ("result",), "Std": ("result",), "Cdist": ("cdist",),
    "Acos": (), "Asin": (), "Atan2": ("self",), "Acosh": (), "Atanh": (),
}  # fmt: skip
"""Operations whose derivative is infinite or 0/0 somewhere, and what they keep that is 0 there."""
ROOTS = {
    "Sqrt": 0,
    "Rsqrt": 0,
    "Log": 0,
    "Log2": 0,
    "Log10": 0,
    "Pow": 0,
    "Reciprocal": 0,
    "Div": 1,
}
"""Those that people guard with a small constant, and which of their inputs has it."""


class Visit(NamedTuple):
    """One node as backward came through it."""

    operation: str
    module: str | None
    after: bool
    title: str
    dtype: str
    epsilon: str | None = None
    """The small constant in front of it that float16 may have made 0; "yes" for one that is not
    kept."""


class LateOrigin:
    """The nodes of one backward pass, while their numbers are on a device.

    Attributes:
        scalars: largest magnitude that goes out, largest that comes in, and whether the derivative
            has a pole there, for each node; inf and NaN come through.
    """

    __slots__ = ("scalars", "visits")

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.scalars: list[Tensor] = []

    def fact(self, numbers: Sequence[float]) -> str | None:
        """What the first one with inf or NaN in it says; ``numbers`` became of the scalars."""
        for place, visit in enumerate(self.visits):
            out, incoming, pole = numbers[3 * place : 3 * place + 3]
            if out - out != 0:
                return _fact(visit, incoming, nan=out != out, pole=bool(pole))
        return None


class OriginSearch:
    """Looks at the backward passes that it is armed for.

    Args:
        names: of parameters, for those of modules.
        packing: whether what nodes keep may be read.
    """

    def __init__(self, names: Naming, packing: PackingWatch) -> None:
        self._names = names
        self._packing = packing
        self._hooks = NodeHooks()
        self._found: str | None = None
        self._late: LateOrigin | None = None
        self._seconds = 0.0
        self.blind = False

    @property
    def armed(self) -> bool:
        return self._hooks.armed

    def arm(self, roots: list[Tensor]) -> None:
        """The backward pass that begins now is looked at."""
        if compiled_autograd():
            self.blind = True
            return
        self._seconds, self._found = 0.0, None
        self._late = None if at_hand(roots[0]) else LateOrigin()
        for operation in operations_of(roots, self._names, saved=False):
            if operation.title not in UNCHANGED:
                look = functools.partial(self._look, _visit(operation), operation.node)
                self._hooks.after(operation.node, look)

    def done(self) -> tuple[str | None, LateOrigin | None, float]:
        """The pass is over: the fact that was found, or what will tell it, and seconds spent."""
        self._hooks.remove()
        self.blind = self.blind or self._hooks.failed
        late, self._late = self._late, None
        return self._found, late, self._seconds

    def _look(self, visit: Visit, node: object, outgoing: Gradients, incoming: Gradients) -> None:
        if self._found is not None:
            return
        begun = time.perf_counter()
        with torch.no_grad():
            out, dtype = _largest(outgoing)
            if out is not None:
                visit = visit._replace(dtype=dtype)
                if self._late is None:
                    self._judge(visit, node, out, outgoing, incoming)
                else:
                    came, _ = _largest(incoming)
                    pole = self._pole(visit.title, node)
                    self._late.visits.append(visit)
                    self._late.scalars += [
                        out,
                        torch.zeros_like(out) if came is None else came,
                        torch.zeros_like(out) if pole is None else pole,
                    ]
        self._seconds += time.perf_counter() - begun

    def _judge(
        self, visit: Visit, node: object, out: Tensor, outgoing: Gradients, incoming: Gradients
    ) -> None:
        value = out.item()
        if value - value == 0:
            return
        came, _ = _largest(incoming)
        pole = self._pole(visit.title, node)
        nan = value != value
        if nan and visit.title in PRODUCTS:  # where some are inf, their sum can be NaN
            nan = not any(bool(torch.isinf(each).any()) for each in outgoing if each is not None)
        largest = 0.0 if came is None else came.item()
        self._found = _fact(visit, largest, nan=nan, pole=pole is not None and bool(pole))

    def _pole(self, title: str, node: object) -> Tensor | None:
        """Whether the derivative is infinite or 0/0 at some value that was given."""
        if title not in POLES or self._packing.seen:
            return None
        kept = saved_tensors(node)
        found = [(kept[name] == 0).any() for name in POLES[title] if name in kept]
        return found[0] if found else None


def _largest(gradients: Iterable[Tensor | None]) -> tuple[Tensor | None, str]:
    """The largest magnitude and its dtype, on the device; inf and NaN come through."""
    result: Tensor | None = None
    dtype = ""
    for gradient in gradients:
        if gradient is None or not gradient.numel():
            continue
        values = dense(gradient.detach())
        if not values.is_floating_point():
            continue
        low, high = torch.aminmax(values)
        largest = torch.maximum(low.abs(), high.abs())
        if values.dtype is torch.float16 or not dtype:
            dtype = dtype_name(values.dtype)
        result = largest if result is None else torch.maximum(result, largest.to(result.dtype))
    return result, dtype


def _visit(operation: Operation) -> Visit:
    name = str(operation.node.name()).split("::")[-1]
    module = operation.module or operation.after
    return Visit(
        name, module, not operation.weights(), operation.title, "", _lost_in_half(operation)
    )


def _lost_in_half(operation: Operation) -> str | None:
    place = ROOTS.get(operation.title)
    if place is None or place >= len(operation.parents):
        return None
    constant, half = guard_behind(operation.parents[place], operation.dtype is torch.float16)
    return (constant or "yes") if half and constant is not None else None


def _fact(visit: Visit, largest: float, *, nan: bool, pole: bool) -> str:
    """Gradients that came in finite and went out as inf are an overflow: a smaller scale helps.
    NaN, and the inf of a derivative at a pole, are mathematics, and no scale does."""
    summed = largest - largest != 0  # each of several gradients was finite, and not their sum
    mathematics = (nan or pole) and not summed
    return fact(
        "backward-origin",
        operation=f"the sum that {visit.operation} gets" if summed else visit.operation,
        module=visit.module,
        place="after" if visit.after and visit.module else None,
        kind="nan" if mathematics else "overflow",
        values="NaN" if nan else "inf",
        largest=None if summed else f"{largest:.3g}",
        epsilon=visit.epsilon if pole and mathematics else None,
        dtype=visit.dtype,
    )
