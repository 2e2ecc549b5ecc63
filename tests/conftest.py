"""What tests of the training side share. Nothing here imports torch before a test does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

# Before torch is loaded, here and in child processes: threads that wait for each other make
# small tests slow on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("AMPWATCH_LOG", None)

if TYPE_CHECKING:
    from training_loops import RecordingHost


@pytest.fixture
def recorded() -> Iterator[RecordingHost]:
    """A host that keeps what a hook records; hooks that a test leaves open are closed."""
    from training_loops import RecordingHost

    from ampwatch import host, watch

    here = RecordingHost()
    host.install(here)
    yield here
    for each in watch._open.copy():
        each.close()
    host.install(None)
