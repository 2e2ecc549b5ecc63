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
    """In how many records."""
    first: int
    last: int
    details: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Step and details, each kind of details once, the first few."""

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
            seen = self[name] = Seen(0, step, step)
        seen.count += 1
        seen.last = step
        if details and len(seen.details) < MOST_DETAILS:
            known = any(each == details for _, each in seen.details)
            if not known:
                seen.details.append((step, details))
