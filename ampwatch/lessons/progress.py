"""Which lessons are done, kept between runs. Never a reason for a lesson to fail."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

NAME = "lessons.json"


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a lesson was taken."""

    part: int = 0
    """The furthest part that was reached, from 1."""
    parts: int = 0
    done: bool = False

    def words(self) -> str:
        """In a word or two: "done", "part 4/9", "new"."""
        if self.done:
            return "done"
        return f"part {self.part}/{self.parts}" if self.part > 1 else "new"


def state_file() -> Path:
    """Where progress is kept: in ``$XDG_STATE_HOME``, or ``~/.local/state``.

    Source: XDG Base Directory Specification 0.8, which has relative paths ignored.
    """
    named = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(named) if named.startswith("/") else Path("~/.local/state").expanduser()
    return folder / "ampwatch" / NAME


@dataclass(slots=True)
class Progress:
    """Reads the file once, and writes it whenever somebody gets further."""

    path: Path | None = None
    """None: nothing is kept."""
    reached: dict[str, Reached] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None = None) -> Progress:
        """What was kept; nothing where it cannot be read."""
        try:
            path = path or state_file()
            body = json.loads(path.read_text(encoding="utf-8"))
            lessons = dict(body["lessons"])
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return cls(path)
        found = cls(path)
        for name, entry in lessons.items():
            if isinstance(entry, dict):
                part, parts, done = (entry.get(key) for key in ("part", "parts", "done"))
                if type(part) is int and type(parts) is int:
                    found.reached[str(name)] = Reached(part, parts, done is True)
        return found

    def of(self, name: str) -> Reached:
        return self.reached.get(name, Reached())

    def note(self, name: str, part: int, parts: int, done: bool) -> None:
        """Somebody has come to a part of a lesson. What was done once stays done."""
        self._merge(Progress.load(self.path).reached if self.path is not None else {})
        before = self.of(name)
        now = Reached(max(before.part, min(part, parts)), parts, before.done or done)
        if now != before:
            self.reached[name] = now
            self._save()

    def _merge(self, others: dict[str, Reached]) -> None:
        """What was noted elsewhere meanwhile: two lessons may be open at once."""
        for name, each in others.items():
            mine = self.of(name)
            done = mine.done or each.done
            self.reached[name] = Reached(max(mine.part, each.part), each.parts, done)

    def _save(self) -> None:
        """Beside the file first, then in its place: a reader never meets half of it."""
        if self.path is None:
            return
        body = {
            "lessons": {
                name: {"part": each.part, "parts": each.parts, "done": each.done}
                for name, each in sorted(self.reached.items())
            }
        }
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            number, draft = tempfile.mkstemp(prefix=NAME, dir=self.path.parent)
            try:
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    file.write(json.dumps(body, indent=1) + "\n")
                os.replace(draft, self.path)
            except OSError:
                os.unlink(draft)
                raise
