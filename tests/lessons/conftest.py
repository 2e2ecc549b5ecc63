"""Where tapes of lessons are kept while the tests run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tapes(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One folder for all workers: a lesson is played for real once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "lesson-tapes"
    folder.mkdir(exist_ok=True)
    return folder
