"""The dashboard knows nothing of torch, nor of the side that trains."""

from __future__ import annotations

import subprocess
import sys

FORBIDDEN = (
    "torch",
    "ampwatch.hook",
    "ampwatch.host",
    "ampwatch.launch",
    "ampwatch.runner",
)


def test_importing_the_dashboard_imports_neither_torch_nor_the_training_side() -> None:
    code = f"import sys, ampwatch.tui.app; print(*[m for m in {FORBIDDEN!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
