"""Which skips are the normal rhythm and which are an alarm, on loops with torch's GradScaler."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from scaler_loop import ScalerLoop

from ampwatch.record import Record
from ampwatch.rules import RULES, Finding
from ampwatch.run import Run

FITS_2_13 = 6.0
"""Times 2^13 it fits float16, times 2^14 it does not."""


def found(records: Iterable[Record]) -> dict[str, Finding]:
    run = Run()
    for record in records:
        run.add(record)
    return {finding.rule: finding for rule in RULES for finding in rule.check(run)}


def test_no_skip_no_finding() -> None:
    assert found(ScalerLoop(1024.0).train([1.0] * 300).records) == {}


def test_the_first_skips_are_the_scale_settling() -> None:
    loop = ScalerLoop(65536.0).train([FITS_2_13] * 50)
    assert loop.skips == [0, 1, 2]
    findings = found(loop.records)
    assert list(findings) == ["scale-settling"]
    settling = findings["scale-settling"]
    assert (settling.severity, settling.first_step, settling.last_step, settling.count) == (
        "info",
        0,
        2,
        3,
    )
    assert "from 2^16 to 2^13" in settling.message


def test_a_late_one_among_the_first_steps_is_settling_too() -> None:
    loop = ScalerLoop(65536.0).train([FITS_2_13] * 8 + [2 * FITS_2_13] * 30)
    assert loop.skips == [0, 1, 2, 8]
    assert list(found(loop.records)) == ["scale-settling"]
    assert found(loop.records)["scale-settling"].count == 4


def test_a_skip_right_after_growth_is_a_probe() -> None:
    loop = ScalerLoop(4096.0, growth_interval=40).train([FITS_2_13] * 300)
    # 40 clean steps lead to 2^13, 40 more to 2^14, which is too much; then 41 to a skip.
    assert loop.skips == [80, 121, 162, 203, 244, 285]
    findings = found(loop.records)
    # 6 steps of 260 are more than one in 50: that is said too.
    assert set(findings) == {"growth-probe-skip", "growth-interval-too-short"}
    assert findings["growth-interval-too-short"].count == 6
    probe = findings["growth-probe-skip"]
    assert (probe.severity, probe.first_step, probe.last_step, probe.count) == ("info", 80, 285, 6)
    assert probe.evidence["steps"] == loop.skips


@pytest.mark.parametrize("interval", [1, 2, 5, 25])
def test_every_growth_interval_has_its_rhythm(interval: int) -> None:
    loop = ScalerLoop(8192.0, growth_interval=interval).train([FITS_2_13] * 120)
    assert loop.skips[0] == interval
    findings = found(loop.records)
    assert set(findings) == {"growth-probe-skip", "growth-interval-too-short"}
    assert findings["growth-probe-skip"].count == len(loop.skips)


def test_a_probe_in_sixty_steps_is_not_too_many() -> None:
    loop = ScalerLoop(8192.0, growth_interval=60).train([FITS_2_13] * 400)
    assert len(loop.skips) == 6
    assert list(found(loop.records)) == ["growth-probe-skip"]


def test_one_large_batch_is_a_lone_overflow() -> None:
    loop = ScalerLoop(4096.0).train([1.0] * 60 + [100.0] + [1.0] * 60)
    assert loop.skips == [60]
    findings = found(loop.records)
    assert list(findings) == ["lone-overflow"]
    assert findings["lone-overflow"].severity == "info"
    assert "at step 60" in findings["lone-overflow"].message


def test_a_skip_some_steps_after_growth_to_the_limit_is_a_probe() -> None:
    loop = ScalerLoop(4096.0, growth_interval=40).train([4.0] * 51 + [8.5] + [4.0] * 20)
    assert loop.skips == [51]
    assert list(found(loop.records)) == ["growth-probe-skip"]


def test_a_large_batch_some_steps_after_growth_far_from_the_limit_is_lone() -> None:
    loop = ScalerLoop(4096.0, growth_interval=40).train([0.5] * 51 + [100.0] + [0.5] * 20)
    assert loop.skips == [51]
    assert list(found(loop.records)) == ["lone-overflow"]


def test_a_skip_long_after_growth_is_no_probe() -> None:
    loop = ScalerLoop(4096.0, growth_interval=100).train([1.0] * 160 + [100.0] + [1.0] * 60)
    assert loop.skips == [160]
    assert list(found(loop.records)) == ["lone-overflow"]


def test_gradients_that_never_fit_collapse_the_scale() -> None:
    loop = ScalerLoop(65536.0).train([0.5] * 30 + [math.inf] * 20)
    findings = found(loop.records)
    assert list(findings) == ["scale-collapse"]
    collapse = findings["scale-collapse"]
    assert (collapse.severity, collapse.first_step, collapse.count) == ("error", 30, 20)
    assert collapse.tensor == "weight"


def test_a_collapse_from_the_first_step_on_is_no_settling() -> None:
    loop = ScalerLoop(65536.0).train([math.inf] * 60)
    findings = found(loop.records)
    assert list(findings) == ["scale-collapse"]
    assert findings["scale-collapse"].evidence["scale_after"] == 65536.0 / 2**60


def test_a_loss_that_is_nan_already_collapses_sooner_and_is_said() -> None:
    loop = ScalerLoop(65536.0).train([math.nan] * 8, loss=math.nan)
    collapse = found(loop.records)["scale-collapse"]
    assert collapse.evidence["nonfinite_losses"] == 8
    assert "the loss itself was NaN" in collapse.message


def test_at_scale_zero_it_is_said_that_the_run_cannot_recover() -> None:
    loop = ScalerLoop(65536.0).train([math.inf] * 180)
    assert loop.scaler.get_scale() == 0.0
    assert "cannot recover" in found(loop.records)["scale-collapse"].message


def test_a_long_way_down_at_the_start_is_no_collapse() -> None:
    """Torch's first scale is 2^16; a model with large losses may need 2^3."""
    loop = ScalerLoop(65536.0).train([FITS_2_13 * 1024] * 60)
    assert len(loop.skips) == 13
    assert list(found(loop.records)) == ["scale-settling"]


def test_a_scale_that_is_held_by_hand_does_not_collapse() -> None:
    loop = ScalerLoop(2.0**22).train([1.0] * 80, new_scale=2.0**22)
    assert len(loop.skips) == 80
    assert "scale-collapse" not in found(loop.records)


def test_targets_enlarged_by_key_make_the_scale_settle_anew() -> None:
    loop = ScalerLoop(8192.0).train([FITS_2_13] * 50, target_gain=1.0)
    loop.train([FITS_2_13 * 1000] * 50, target_gain=1000.0)
    assert loop.skips == list(range(50, 60))
    assert list(found(loop.records)) == ["scale-settling"]


def test_a_new_scaler_in_mid_run_settles_anew() -> None:
    loop = ScalerLoop(2.0**24)
    for _ in range(3):
        loop.new_scaler()
        loop.train([FITS_2_13] * 30)
    # Eleven skips lead from 2^24 to 2^13, three times: settling, not collapse.
    assert len(loop.skips) == 33
    findings = found(loop.records)
    assert list(findings) == ["scale-settling"]
    assert findings["scale-settling"].evidence["bursts"] == 3


def test_bfloat16_with_a_scaler_is_said() -> None:
    loop = ScalerLoop(dtype="bfloat16").train([1.0] * 20)
    findings = found(loop.records)
    assert list(findings) == ["bf16-with-scaler"]
    assert (findings["bf16-with-scaler"].severity, findings["bf16-with-scaler"].count) == (
        "info",
        20,
    )


def test_the_findings_do_not_depend_on_how_often_one_looks() -> None:
    loop = ScalerLoop(65536.0, growth_interval=20).train([FITS_2_13] * 200 + [math.inf] * 20)
    run = Run()
    for record in loop.records:
        run.add(record)
        for rule in RULES:
            list(rule.check(run))
    looked_often = {finding.rule: finding for rule in RULES for finding in rule.check(run)}
    assert looked_often == found(loop.records)
