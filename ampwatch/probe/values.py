"""What is asked of the values that a graph keeps: answered at once, or later.

On the CPU a question is put when its answer is first needed. To read an answer from a device would
wait for it, and by then backward has freed the tensor: so there every question is put ahead, and
the answers come with the numbers of the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from ampwatch.probe.gradients import dense
from ampwatch.probe.private import stored_values

UNREADABLE = (RuntimeError, NotImplementedError, TypeError)
"""On the meta device, inside vmap, of a kind of its own: such a tensor says nothing."""


Kind: TypeAlias = Callable[[Tensor], Tensor]
"""Of question."""


class Question:
    """One number about tensors.

    Args:
        ask: computes it, as a tensor of one element.
        silent: the answer where it cannot be computed.
    """

    __slots__ = ("_answer", "_ask", "_silent")

    def __init__(self, ask: Callable[[], Tensor], silent: float = 0.0) -> None:
        self._ask: Callable[[], Tensor] | None = ask
        self._silent = silent
        self._answer: float | None = None

    def answer(self) -> float:
        """Waits for the device where the answer has not been learned."""
        if self._answer is None:
            scalar = self._put()
            self._answer = self._silent if scalar is None else float(scalar)
        return self._answer

    def leave(self) -> Tensor | None:
        """The answer as a scalar that still is where the tensor is, which is let go; ``None`` if it
        is known already."""
        if self._answer is not None:
            return None
        scalar = self._put()
        if scalar is None:
            self._answer = self._silent
        return scalar

    def learn(self, number: float) -> None:
        """What became of the scalar."""
        self._answer = number

    def _put(self) -> Tensor | None:
        """The answer, where it can be computed; the tensor is let go."""
        ask, self._ask = self._ask, None
        assert ask is not None
        try:
            scalar = ask()
        except torch.OutOfMemoryError:
            raise
        except UNREADABLE:
            return None
        return None if scalar.is_meta else scalar


def largest(values: Tensor) -> Tensor:
    """The largest magnitude; inf and NaN come through."""
    return values.abs().max()


def lowest(values: Tensor) -> Tensor:
    return values.min()  # amin gives anything at all for the number of a product (torch 2.13)


def highest(values: Tensor) -> Tensor:
    return values.max()


def infinite(values: Tensor) -> Tensor:
    return torch.isinf(values).any()


def zero(values: Tensor) -> Tensor:
    return (values == 0).any()


def one(values: Tensor) -> Tensor:
    return (values == 1).any()


def largest_finite(values: Tensor) -> Tensor:
    """-1 where nothing is finite."""
    return torch.where(torch.isfinite(values), values.abs(), -1).max()


def nan_rows(values: Tensor) -> Tensor:
    return torch.isnan(values).all(-1).sum(dtype=torch.float32)


ALL = (largest, lowest, highest, infinite, zero, one, largest_finite, nan_rows)
"""What can be asked."""


MOST_AT_ONCE = 1 << 25
"""Most questions make a copy or two of the values they are about. Before backward the memory of a
device is fuller than at any other time: so of larger tensors they are put piece by piece."""


def _in_pieces(kind: Kind, values: Tensor) -> Tensor:
    if values.numel() <= MOST_AT_ONCE or not values.dim():
        return kind(values)
    places = range(values.dim() - (kind is nan_rows and values.dim() > 1))
    longest = max(places, key=lambda place: values.shape[place])
    length = max(1, MOST_AT_ONCE * values.shape[longest] // values.numel())
    answers = torch.stack([kind(each) for each in torch.split(values, length, longest)])
    if kind is nan_rows:
        return answers.sum() if values.dim() > 1 else answers.min()
    return answers.min() if kind is lowest else answers.max()


class Values:
    """The values of one tensor.

    Attributes:
        tensor: where they are; None once it has been let go.
        holders: variables of the script that may hold the batch they are a copy of, where these
            have been looked up ahead.
    """

    __slots__ = ("_asked", "dtype", "holders", "rank", "size", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: Tensor | None = tensor
        self.dtype = tensor.dtype
        self.size = tensor.numel()
        self.rank = tensor.dim()
        self.holders: list[tuple[str, Values]] | None = None
        self._asked: dict[Kind, Question] = {}

    @property
    def finite(self) -> bool:
        return math.isfinite(self._ask(largest))

    @property
    def nan(self) -> bool:
        return math.isnan(self._ask(largest))

    @property
    def above(self) -> bool:
        """Whether inf is among them, or NaN: more than the -inf of a mask."""
        return self.nan or (not self.finite and self._ask(highest) == math.inf)

    @property
    def infinite(self) -> bool:
        """Whether inf or -inf is among them."""
        return self._ask(largest) == math.inf or (self.nan and bool(self._ask(infinite)))

    @property
    def zero(self) -> bool:
        """Whether any of them is 0."""
        return bool(self._ask(zero))

    @property
    def one(self) -> bool:
        """Whether any of them is 1."""
        return bool(self._ask(one))

    @property
    def negative(self) -> bool:
        """Whether any is below 0; said of finite values."""
        return self._ask(lowest) < 0

    @property
    def largest(self) -> float:
        """The largest magnitude, or NaN."""
        return self._ask(largest)

    @property
    def largest_finite(self) -> float | None:
        """The largest magnitude of those that are finite."""
        found = self._ask(largest_finite) if self.size else -1.0
        return None if found < 0 else found

    @property
    def nan_rows(self) -> int:
        """Rows in which there is nothing but NaN."""
        return int(self._ask(nan_rows))

    @property
    def plain(self) -> bool:
        """Whether fused operations on many tensors take this one."""
        tensor = self.tensor
        return (
            type(tensor) is Tensor
            and tensor.layout is torch.strided
            and not tensor.is_nested
            and tensor.dim() > 0
            and tensor.is_floating_point()
            and tensor.element_size() > 1
        )

    def question(self, kind: Kind) -> Question:
        """To be answered, or asked ahead. What was not asked before the tensor was let go has the
        answer 0."""
        asked = self._asked.get(kind)
        if asked is None:
            tensor = self.tensor

            def ask() -> Tensor:
                return (
                    torch.zeros((), device="cpu")
                    if tensor is None
                    else _in_pieces(kind, readable(tensor))
                )

            asked = self._asked[kind] = Question(ask)
        return asked

    def _ask(self, kind: Kind) -> float:
        return self.question(kind).answer() if self.size else 0.0


def readable(tensor: Tensor) -> Tensor:
    """Real and local; of a sparse one the values that it has, repeated entries apart, since to add
    them up would wait for a device. Numbers of 8 bits have no arithmetic of their own."""
    values = tensor.detach()
    if values.layout is torch.sparse_coo:
        values = stored_values(values)
    elif values.layout is not torch.strided:
        values = values.values()
    values = dense(values)
    eight = values.is_floating_point() and values.element_size() == 1
    return values.float() if eight else values
