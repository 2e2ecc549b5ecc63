"""The hook's facts over a run: where each was seen, and the details of the first ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from ampwatch.record.facts import split_fact
from ampwatch.run.spans import MOST_KEYS

MOST_DETAILS = 16


@dataclass(slots=True)
class Seen:
    """A fact in a run."""

    count: int
    """In how many steps: several optimizers of one step are one."""
    first: int
    last: int
    details: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Step and details, each kind of details once, the first few."""

    times: list[int] = field(default_factory=list)
    """How often each of these details was told."""

    def told(self, key: str) -> int:
        """How often it came with such a detail."""
        return sum(n for (_, each), n in zip(self.details, self.times, strict=True) if key in each)

    def only(self, *keys: str, without: tuple[str, ...] = (), **wanted: str) -> Seen | None:
        """Where it came with these details, as far as those are kept.

        Args:
            keys: of details that must be there, whatever they say.
            without: keys of details that must not.
            wanted: details that must say this.
        """
        kept = [
            (step, each, times)
            for (step, each), times in zip(self.details, self.times, strict=True)
            if wanted.items() <= each.items()
            and each.keys() >= set(keys)
            and each.keys().isdisjoint(without)
        ]
        if not kept:
            return None
        steps, details, times = zip(*kept, strict=True)
        pairs = list(zip(steps, details, strict=True))
        return Seen(sum(times), steps[0], max(steps), pairs, list(times))

    def value(self, key: str) -> str | None:
        """A detail, from the first step that told it."""
        return next((each[key] for _, each in self.details if key in each), None)


class FactLog(dict[str, Seen]):
    """By the fact's name."""

    def note(self, text: str, step: int) -> None:
        """It was in the record of this step."""
        name, details = split_fact(text)
        seen = self.get(name)
        if seen is None:
            if len(self) >= MOST_KEYS:
                return
            seen = self[name] = Seen(0, step, step - 1)
        seen.count += step > seen.last
        seen.last = step
        if not details:
            return
        for place, (_, known) in enumerate(seen.details):
            if known == details:
                seen.times[place] += 1
                return
        if len(seen.details) < MOST_DETAILS:
            seen.details.append((step, details))
            seen.times.append(1)
