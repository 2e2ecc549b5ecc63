"""plotext draws the frame, in both majors, and never meets a measured value."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from plotext_check import check_size_beyond_the_terminal, check_sizes

from ampwatch.history import History
from ampwatch.plot import frame, plotext_frame
from ampwatch.plot.draw import draw
from ampwatch.plot.spec import Curve, PlotSpec

pytestmark = pytest.mark.filterwarnings("error")
OTHER = "AMPWATCH_OTHER_PLOTEXT"


def test_frames_of_the_installed_plotext_have_their_ticks_in_place(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert check_sizes() > 500
    check_size_beyond_the_terminal()
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(OTHER not in os.environ, reason=f"{OTHER} names no folder with another plotext")
def test_frames_of_the_other_major_have_their_ticks_in_place() -> None:
    folder = Path(os.environ[OTHER])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("plotext_check.py"))],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("plotext ")


def test_only_places_from_0_to_1_and_our_own_words_reach_plotext(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[float, str]] = []
    real = plotext_frame.build

    def spy(
        width: int,
        height: int,
        x_ticks: Sequence[tuple[float, str]],
        y_ticks: Sequence[tuple[float, str]],
    ) -> list[str]:
        seen.extend([*x_ticks, *y_ticks])
        return real(width, height, x_ticks, y_ticks)

    monkeypatch.setattr(plotext_frame, "build", spy)
    frame.forget()
    history = History()
    for step, value in enumerate([1e308, float("nan"), -1e308, float("inf"), 5e-324]):
        history.add(step, value)
    draw(PlotSpec("x", "名[b]", "v\x1b", (Curve("c\n", history),), 0, 4), 60, 15)
    assert seen
    assert all(0 <= at <= 1 and text.isascii() and text.isprintable() for at, text in seen)


def test_the_frame_is_kept_while_only_the_curve_and_the_value_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[int] = []
    real = plotext_frame.build

    def spy(*arguments: Any) -> list[str]:
        built.append(1)
        return real(*arguments)

    monkeypatch.setattr(plotext_frame, "build", spy)
    history = History()
    history.add(0, 0.0)
    history.add(1, 10.0)
    frame.forget()
    counts = []
    for step in range(2, 10):
        history.add(step, float(step))
        draw(PlotSpec("x", "x", str(step), (Curve("x", history),), 0, step), 60, 15)
        counts.append(len(built))
    assert counts == [2] * 8  # once the sides, once the bottom
