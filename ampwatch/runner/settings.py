"""What the screen's process tells the training's process at its start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How a script is to be run; whatever is ``None`` is left as the script has it."""

    name: str
    log: str | None = None
    """Absolute path of the log, if one is kept."""
    steps: int | None = None
    """Stop after so many."""
    rate: float | None = None
    """Steps a second to hold back to."""
    seed: int | None = None
    device: str | None = None
    dtype: str | None = None
    scaler: str | None = None
    memory: bool = False
    """Whether steps after a pause tell what they keep in memory."""


@dataclass(frozen=True, slots=True)
class Child:
    """The same with the file numbers the child inherits."""

    settings: Settings
    records: int
    """Where records go."""
    requests: int
    """Where requests come from."""
    heard: int
    """Where it is said that an interrupt was heard."""

    def to_json(self) -> str:
        pipes = {"records": self.records, "requests": self.requests, "heard": self.heard}
        return json.dumps({**pipes, **asdict(self.settings)})

    @classmethod
    def from_json(cls, text: str) -> Child:
        body = json.loads(text)
        pipes = [body.pop(name) for name in ("records", "requests", "heard")]
        return cls(Settings(**body), *pipes)
