"""A distributed run: one log a rank, merged into one run when read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from ampwatch.record import ActivationStats, Record, RunEnd, RunInfo, StepRecord, TensorStats


def rank_path(path: Path | str, rank: int, world_size: int) -> Path:
    """Where one rank writes: the path itself, or a file in the folder of that name."""
    return Path(path) if world_size <= 1 else Path(path) / f"rank-{rank:05d}.jsonl"


def rank_files(folder: Path) -> list[Path]:
    """The ranks' logs in a folder, lowest rank first."""
    return sorted(folder.glob("rank-*.jsonl"), key=lambda path: (len(path.name), path.name))


class RankMerger:
    """Puts the records of several ranks together, step by step.

    A step goes out when every rank has come past it, has ended, or is late and not waited for.
    """

    def __init__(self, ranks: int = 0) -> None:
        self.late: set[int] = set()
        """Ranks that are not waited for: they may have died without a word."""
        self._waiting: list[deque[StepRecord | TensorStats | ActivationStats]] = []
        self._reached: list[int] = []
        self._done: set[int] = set()
        self._ends: dict[int, RunEnd] = {}
        self._others: list[Record] = []
        self._info: RunInfo | None = None
        self._step = -1
        self._told_end = False
        self.grow(ranks)

    def grow(self, ranks: int) -> None:
        """More ranks have turned up."""
        while len(self._waiting) < ranks:
            self._waiting.append(deque())
            self._reached.append(-1)

    def feed(self, rank: int, records: Iterable[Record]) -> None:
        """Take in what one rank has recorded."""
        for record in records:
            if isinstance(record, (StepRecord, TensorStats, ActivationStats)):
                # What comes after its step went out without it is too late to be told.
                if record.step > self._step:
                    self._waiting[rank].append(record)
                self._reached[rank] = max(self._reached[rank], record.step)
            elif isinstance(record, RunInfo):
                self._begin(rank, record)
            elif isinstance(record, RunEnd):
                self._ends[rank] = record
                self._done.add(rank)
            else:
                self._others.append(record)

    def finish(self, rank: int) -> None:
        """Nothing more will come from this rank."""
        self._done.add(rank)

    def behind(self) -> set[int]:
        """The ranks to read from next, so that few records have to wait."""
        reached = {rank: self._reached[rank] for rank in self._open()}
        least = min(reached.values(), default=0)
        return {rank for rank, step in reached.items() if step == least}

    def take(self) -> list[Record]:
        """How the run began, all steps that are complete, and how it ended."""
        merged, self._others = self._others, []
        limit = min((self._reached[rank] for rank in self._open() - self.late), default=None)
        while True:
            step = min((queue[0].step for queue in self._waiting if queue), default=None)
            if step is None or (limit is not None and step >= limit):
                break
            merged.extend(self._merge(step))
            self._step = step
        if self._ends and not self._told_end and not self._open() - self.late:
            self._told_end = True
            merged.append(_merge_ends(self._ends))
        return merged

    def _open(self) -> set[int]:
        return set(range(len(self._waiting))) - self._done

    def _begin(self, rank: int, info: RunInfo) -> None:
        """The run is told by the lowest rank that has spoken; each rank has its own clock."""
        if self._info is None or info.rank <= self._info.rank:
            self._info = info
            self._others.append(info)

    def _merge(self, step: int) -> list[Record]:
        steps: dict[str | None, list[StepRecord]] = {}
        stats: dict[tuple[str, ...], list[TensorStats | ActivationStats]] = {}
        for queue in self._waiting:
            while queue and queue[0].step <= step:
                record = queue.popleft()
                if isinstance(record, StepRecord):
                    steps.setdefault(record.optimizer, []).append(record)
                else:
                    stats.setdefault((type(record).__name__, *record.name), []).append(record)
        merged: list[Record] = [merge_ranks(records) for records in steps.values()]
        merged += [max(same, key=lambda one: sum(one.nonfinite)) for same in stats.values()]
        return merged


def merge_ranks(records: Sequence[StepRecord]) -> StepRecord:
    """One optimizer's step as the ranks saw it, lowest rank first, in one record.

    The loss is the mean of the ranks' losses, each being over a share of the batch. A step counts
    as skipped when any rank skipped it. Gradients are those of the lowest rank (every rank has the
    same after all-reduce) or of the rank that saw the most inf and NaN.
    """
    first = records[0]
    if len(records) == 1:
        return first
    losses = [record.loss for record in records if record.loss is not None]
    skips = [record.skipped for record in records if record.skipped is not None]
    worst = max(
        records, key=lambda record: record.nonfinite_values or record.nonfinite_tensors or 0
    )
    chosen = worst if worst.nonfinite_tensors else first
    overheads = [record.overhead for record in records if record.overhead is not None]
    facts = dict.fromkeys(fact for record in records for fact in record.facts)
    return chosen._replace(
        time=max(record.time for record in records),
        loss=sum(losses) / len(losses) if losses else None,
        skipped=any(skips) if skips else None,
        overhead=max(overheads) if overheads else None,
        facts=tuple(facts),
        metrics=first.metrics,
    )


def _merge_ends(ends: dict[int, RunEnd]) -> RunEnd:
    """One failed rank is a failed run; one stopped rank a stopped one."""
    steps = max(end.steps for end in ends.values())
    for status in ("failed", "stopped"):
        for rank, end in sorted(ends.items()):
            if end.status == status:
                error = None if end.error is None else f"rank {rank}: {end.error}"
                return RunEnd(status, steps, error)
    return RunEnd(next(iter(ends.values())).status, steps)
