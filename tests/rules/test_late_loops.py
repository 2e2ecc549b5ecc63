"""Where numbers come late, as from a GPU, the same mistakes are found: from what is asked ahead,
and from what is still there when the scaler has waited for the device."""

from __future__ import annotations

import pytest
import test_input_loops
import test_leftover_loops
import test_mask_loops
import test_nan_in_backward_loops
import test_nan_loops
import test_overflow_loops
from late_numbers import make_late
from watched_loops import Loop, Loops, findings_of

FILES = (
    test_input_loops,
    test_leftover_loops,
    test_mask_loops,
    test_nan_in_backward_loops,
    test_nan_loops,
    test_overflow_loops,
)
LOOPS = [loop for file in FILES for loop in file.LOOPS.all]
NOT_SEEN = ("nan_without_a_scaler", "beyond_float16_without_a_scaler")
"""Nobody waits for the device in these, and one bad step has spoilt the weights before anything is
known of it."""


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    make_late(monkeypatch)


@pytest.mark.parametrize("loop", [x for x in LOOPS if str(x) not in NOT_SEEN], ids=str)
def test_exactly_the_mistakes_of_a_loop_are_found_late(loop: Loop) -> None:
    Loops().check(loop)


@pytest.mark.parametrize("loop", [x for x in LOOPS if str(x) in NOT_SEEN], ids=str)
def test_what_was_not_seen_is_said_to_be_so(loop: Loop) -> None:
    message = findings_of(loop.run)["nan-not-overflow"].message
    assert "where it arose was not seen; since then weights are inf or NaN too" in message
