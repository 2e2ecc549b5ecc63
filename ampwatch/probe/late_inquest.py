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
from ampwatch.probe.values import (
    ALL,
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
        scalars: the answers, float32, of one dimension, on the device of the first loss.
    """

    __slots__ = ("_inquest", "_open", "scalars")

    def __init__(self, roots: list[Tensor], names: Naming) -> None:
        self._open: list[Question] = []
        answers: list[Tensor] = [torch.zeros((), device=roots[0].device)]
        with plainly(roots):
            self._inquest = Inquest(roots, names)
            fused: dict[tuple[torch.device, torch.dtype], list[Values]] = {}
            for values, kinds in self._asked():
                for kind in kinds if values.size else ():
                    if kind is largest and values.plain:
                        tensor = values.tensor
                        assert tensor is not None
                        fused.setdefault((tensor.device, tensor.dtype), []).append(values)
                    else:
                        self._leave(values.question(kind), answers)
            for group in fused.values():
                self._open += [values.question(largest) for values in group]
                tensors = [values.tensor for values in group if values.tensor is not None]
                answers += foreach_norm(tensors, order=torch.inf)
            for question in self._of_operations():
                self._leave(question, answers)
            self._let_go()
            device = roots[0].device
            together = [each.to(device, non_blocking=True) for each in answers]
            self.scalars = torch.stack(together)[1:].float()

    def fact(self, numbers: Sequence[float]) -> str | None:
        """The fact that tells where inf or NaN came from; ``numbers`` became of the scalars."""
        for question, number in zip(self._open, numbers, strict=True):
            question.learn(number)
        return self._inquest.verdict()

    def _leave(self, question: Question, answers: list[Tensor]) -> None:
        answer = question.leave()
        if answer is not None:
            self._open.append(question)
            answers.append(answer)

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
