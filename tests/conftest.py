"""What tests of the training side share. Nothing here imports torch before a test does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Before torch is loaded, here and in child processes: threads that wait for each other make
# small tests slow on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("AMPWATCH_LOG", None)

# A file is run by one worker: the longest begin first, so that no worker is left alone with one.
LONGEST = (
    "test_bit_identical.py",
    "rules/test_cases.py",
    "tui/test_fuzz.py",
    "lessons/test_plays.py",
    "cli/test_headless_runs.py",
    "lessons/test_learn_command.py",
    "cli/test_compare.py",
    "test_distributed.py",
    "demos/test_healthy_demos.py",
    "demos/test_demo_stories.py",
)

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


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait for a process of theirs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (cores or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files in front; the others keep their order."""
    here = Path(__file__).parent
    place = {here / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(LONGEST)))
