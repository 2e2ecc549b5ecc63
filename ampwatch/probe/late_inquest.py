"""An inquest into a loss of which it is not known yet whether it is finite: it is on a device.

Everything that a verdict may ask of the graph is asked before backward frees it, and left on the
device; the verdict comes with the numbers of the record. Most values are asked for one number
alone, all of them in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ampwatch.probe import frames, verdicts
from ampwatch.probe.guards import GUARDED, product_behind
from ampwatch.probe.inquest import Inquest, plainly
from ampwatch.probe.operations import SETTINGS, Naming, Operation
from ampwatch.probe.private import foreach_norm
from ampwatch.probe.transfer import at_hand
from ampwatch.probe.values import (
    ALL,
    UNREADABLE,
    Kind,
    Question,
    Values,
    highest,
    infinite,
    largest,
    largest_finite,
    zero,
)

CLOSELY = (*GUARDED, *verdicts.ROOTS, *verdicts.SOFTMAX, verdicts.IMPOSSIBLE)
"""Operations whose verdict asks for more than how far values go."""


class LateInquest:
    """A graph that was asked ahead.

    Args:
        roots: the losses, as they are back-propagated.
        names: of parameters.

    Attributes:
        scalars: the answers, of one dimension, on the device of the first one.
    """

    __slots__ = ("_answers", "_inquest", "_open", "scalars")

    def __init__(self, roots: list[Tensor], names: Naming) -> None:
        self._open: list[Question] = []
        self._answers: list[Tensor] = []
        with plainly(roots):
            self._inquest = Inquest(roots, names)
            fused: dict[tuple[torch.device, torch.dtype], list[Values]] = {}
            for values, kinds in self._asked():
                for kind in kinds if values.size else ():
                    tensor = values.tensor
                    if kind is largest and values.plain and tensor is not None:
                        fused.setdefault((tensor.device, tensor.dtype), []).append(values)
                    else:
                        self._leave(values.question(kind))
            for group in fused.values():
                self._leave_all(group)
            for question in self._of_operations():
                self._leave(question)
            self._let_go()
            self.scalars = self._packed()

    def fact(self, numbers: Sequence[float]) -> str | None:
        """The fact that tells where inf or NaN came from; ``numbers`` became of the scalars."""
        for question, number in zip(self._open, numbers, strict=True):
            question.learn(number)
        return self._inquest.verdict()

    def _leave(self, question: Question) -> None:
        answer = question.leave()
        if answer is not None:
            self._keep(question, answer)

    def _leave_all(self, group: list[Values]) -> None:
        """The largest magnitude of each."""
        tensors = [values.tensor for values in group if values.tensor is not None]
        try:
            answers = foreach_norm(tensors, order=torch.inf)
        except torch.OutOfMemoryError:
            raise
        except UNREADABLE:  # one of them is of a kind of its own
            for values in group:
                self._leave(values.question(largest))
            return
        for values, answer in zip(group, answers, strict=True):
            self._keep(values.question(largest), answer)

    def _keep(self, question: Question, answer: Tensor) -> None:
        if at_hand(answer):  # as that of a plain number by which something was multiplied
            question.learn(answer.item())
        else:
            self._open.append(question)
            self._answers.append(answer)

    def _packed(self) -> Tensor:
        answers, self._answers = self._answers, []
        if not answers:
            return torch.zeros(0, device="cpu")
        device = answers[0].device
        wide = torch.float64 if device.type in ("cpu", "cuda") else torch.float32
        return torch.stack([each.to(device, wide, non_blocking=True) for each in answers])

    def _asked(self) -> Iterator[tuple[Values, Iterable[Kind]]]:
        """Which values are asked for what; each once."""
        variables: list[frames.Held] | None = None
        for root, _ in self._inquest.roots:
            yield root, ALL
        for leaf in self._leaves():
            yield leaf, (largest,)
        for operation in self._inquest.operations:
            for name, values in operation.saved.items():
                yield values, _kinds(operation, name, values)
            for setting in map(operation.setting, SETTINGS):
                if isinstance(setting, Values):
                    yield setting, ALL
            for values in verdicts.from_outside(operation):
                variables = list(frames.held()) if variables is None else variables
                values.holders = frames.holders(values, variables)
                for _, holder in values.holders:
                    yield holder, (largest,)

    def _leaves(self) -> list[Values]:
        leaves = {
            parent: parent.variable
            for operation in self._inquest.operations
            for parent in operation.parents
            if parent is not None
        }
        return [leaf for leaf in leaves.values() if leaf is not None]

    def _of_operations(self) -> Iterator[Question]:
        asked: set[Operation] = set()
        for operation in self._inquest.operations:
            if operation.title == "Pow" and operation.power is not None:
                yield operation.power
            scores = product_behind(operation) if operation.title in verdicts.SOFTMAX else None
            if scores is not None and scores not in asked:
                asked.add(scores)
                yield scores.product

    def _let_go(self) -> None:
        """Keep nothing of the loop's alive."""
        for values in (*self._leaves(), *(root for root, _ in self._inquest.roots)):
            values.tensor = None
        for operation in self._inquest.operations:
            operation.let_go()
            for values in operation.saved.values():
                for _, holder in values.holders or ():
                    holder.tensor = None
            for parent in operation.parents:
                if parent is not None:
                    parent.node = None


def _kinds(operation: Operation, name: str, values: Values) -> Iterable[Kind]:
    """What a verdict may ask of values that this operation keeps."""
    maker = verdicts.maker_of(operation, name)
    closely = operation.title in CLOSELY or operation.title.startswith("ScaledDotProduct")
    if closely or name == "total_weight" or (maker and maker.title in verdicts.SOFTMAX):
        return ALL
    kinds = [largest, largest_finite if values.dtype is torch.float16 else infinite]
    if name in operation.results():
        kinds.append(zero)
    if maker is None:
        kinds.append(highest)
    return kinds
