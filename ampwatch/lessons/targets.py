"""Which keys enlarge the targets to what a lesson asks for, whatever was pressed before."""

from __future__ import annotations

import math
from collections.abc import Callable

from ampwatch.controls import TARGET_GAIN
from ampwatch.lessons.scene import Scene


def keys_to_targets(gain: int) -> Callable[[Scene], str]:
    """The presses that are still to come: fewer after each one, and 0 first after one too many."""

    def keys(scene: Scene) -> str:
        missing = _tens(gain / scene.asked(TARGET_GAIN))
        return " ".join("t" * missing if missing >= 0 else "0" + "t" * _tens(gain))

    return keys


def _tens(ratio: float) -> int:
    return round(math.log10(ratio))
