"""What findings say: periods, causes, prices, the scale that would fit, and torch's own words."""

from __future__ import annotations

import math

import pytest
import torch
from scaler_loop import ScalerLoop
from watched_loops import INF, NAN, F, amp, findings_of, mean_loss, mlp, scaling, train

from ampwatch.rules import RULES, Finding
from ampwatch.run import Run

NOTHING = Finding("", "info", "")


def found(loop: ScalerLoop) -> dict[str, Finding]:
    run = Run()
    for record in loop.records:
        run.add(record)
    return {finding.rule: finding for rule in RULES for finding in rule.check(run)}


def every_16th(step: int, heavy: float = 1000.0) -> float:
    return heavy if step % 16 == 15 else 1.0


def test_skips_at_every_16th_step_are_named_with_their_period() -> None:
    loop = ScalerLoop(64.0, growth_interval=5).train([every_16th(step) for step in range(320)])
    assert set(range(47, 320, 16)) <= set(loop.skips)
    findings = found(loop)
    told = findings["growth-interval-too-short"]
    assert told.evidence["period"] == 16
    assert "every 16th step was skipped" in told.message
    assert told.last_step == 319
    assert "lone-overflow" not in findings
    assert not [step for step in findings["growth-probe-skip"].evidence["steps"] if step % 16 == 15]


def test_skips_at_every_16th_step_are_told_from_those_by_growth() -> None:
    # 2^13 fits gradients of 6, 2^14 does not: growth every 5 steps overflows by itself as well.
    gradients = [every_16th(step, 600.0) * (6.0 if step % 16 != 15 else 1.0) for step in range(480)]
    loop = ScalerLoop(8192.0, growth_interval=5).train(gradients)
    assert len(loop.skips) > 480 // 16  # those by growth come on top
    findings = found(loop)
    assert findings["growth-interval-too-short"].evidence["period"] == 16
    probes = findings["growth-probe-skip"].evidence["steps"]
    assert probes
    assert not [step for step in probes if step % 16 == 15]


def test_the_rhythm_of_growth_itself_has_no_other_period() -> None:
    loop = ScalerLoop(8192.0, growth_interval=15).train([6.0] * 400)
    assert loop.skips == list(range(15, 400, 16))  # one in sixteen, by growth alone
    assert "period" not in found(loop)["growth-interval-too-short"].evidence


def test_heavy_steps_that_the_scale_settles_for_are_settling() -> None:
    loop = ScalerLoop(32768.0).train([every_16th(step, 60.0) for step in range(320)])
    assert loop.skips == [15, 31, 47, 63, 79]  # 60 times 2^10 fits
    assert set(found(loop)) == {"scale-settling"}


def test_a_new_task_at_every_40th_step_is_not_lost_by_its_first_skip() -> None:
    """The loss stays as high in the next step, which learns from it."""
    loop = ScalerLoop(2.0**14, growth_interval=12)
    for _ in range(8):
        loop.train([20.0] * 10, loss=100.0)
        loop.train([1.0] * 30, loss=1.0)
    assert set(range(40, 320, 40)) <= set(loop.skips)
    assert "period" not in found(loop).get("growth-interval-too-short", NOTHING).evidence


def test_losses_with_a_long_tail_are_no_spikes() -> None:
    """Log-normal losses of small batches reach ten times their median now and then."""
    generator = torch.Generator().manual_seed(5)
    losses = torch.randn(2000, generator=generator).mul(1.2).exp().tolist()
    loop = ScalerLoop(1024.0)
    for loss in losses:
        loop.train([1.0], loss=loss)
    assert max(losses) > 10 * sorted(losses)[1000]
    assert "loss-spike" not in found(loop)


def test_a_bad_batch_in_every_epoch_is_named_with_its_period() -> None:
    def data(step: int) -> torch.Tensor:
        x = torch.randn(32, 16)
        if step % 12 == 5:
            x[0, 0] = NAN
        return x

    told = findings_of(lambda: train(data=data, steps=80))["nonfinite-input"]
    assert told.evidence["period"] == 12
    assert told.evidence["variable"] == "x"
    assert "at every 12th step" in told.message


@pytest.mark.parametrize(
    ("loss", "data", "cause"),
    [
        (lambda model, x: torch.log(model(x).float() - 100).pow(2).mean(), None, "forward pass"),
        (lambda model, x: mean_loss(model, x) * INF, None, "loss"),
        (lambda model, x: (model(x) * 6e4 * 4).pow(2).mean().float(), None, "forward pass"),
        (mean_loss, NAN, "input"),
    ],
)
def test_a_collapse_names_its_cause(loss: object, data: float | None, cause: str) -> None:
    def batch(step: int) -> torch.Tensor:
        x = torch.randn(32, 16)
        if data is not None:
            x[0, 0] = data
        return x

    told = findings_of(lambda: train(loss=loss, data=batch, steps=30))["scale-collapse"]
    assert told.evidence["cause"] == cause
    assert told.evidence["steps_lost"] == 30


def test_a_collapse_names_the_parameter_and_the_operation_of_its_backward_pass() -> None:
    def loss(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        h = model[0](x).float()
        return mean_loss(model, x) + (h - h.detach()).pow(2).sum(1).sqrt().mean()

    told = findings_of(lambda: train(loss=loss, steps=40))["scale-collapse"]
    assert told.evidence["cause"] == "parameter"
    assert told.tensor == "0.weight" or told.module == "0" or "sqrt" in told.message


def test_gradients_that_are_never_cleared_are_the_cause_of_their_collapse() -> None:
    def loop() -> None:
        model = mlp(32, 64)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 1e-3), scaling()
        for _ in range(40):
            x = torch.randn(64, 32)
            with amp():
                loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True) * 10)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    assert findings_of(loop)["scale-collapse"].evidence["cause"] == "left over"


@pytest.mark.parametrize("exponent", [-127, -128, -149])
def test_from_two_to_the_minus_128_on_torch_steps_into_inf(exponent: int) -> None:
    """Where the rule's bound comes from: 1 / scale in float32."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], 0.1), scaling(init_scale=2.0**exponent)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    assert bool(torch.isfinite(weight).all()) == (exponent > -128)


def test_before_the_scale_is_lost_it_is_said_when() -> None:
    loop = ScalerLoop(2.0**16).train([INF] * 100)
    early = found(loop)["scale-collapse"]
    assert early.evidence["skips_left"] == 44  # 2^-84 to 2^-128
    assert "After 44 more skips" in early.message
    late = found(loop.train([INF] * 44))["scale-collapse"]
    assert late.evidence["skips_left"] == 0
    assert "the next clean batch" in late.message


def test_once_a_clean_batch_has_come_the_step_is_named() -> None:
    loop = ScalerLoop(2.0**16).train([INF] * 150).train([0.5] * 3)
    assert "Step 150 was taken at such a scale" in found(loop)["scale-collapse"].message


def test_a_price_is_told_for_healthy_skips() -> None:
    loop = ScalerLoop(65536.0).train([6.0] * 60)
    told = found(loop)["scale-settling"]
    assert told.evidence["steps_lost"] == 3
    assert told.evidence["share"] == pytest.approx(3 / 60)
    assert "That cost 3 of 60 steps (5 %), which is normal" in told.message


def test_a_fixed_scale_that_is_too_low_names_the_best_one() -> None:
    def loop() -> None:
        torch.manual_seed(1)
        model, x = mlp(32, 64), torch.randn(64, 32)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 1e-9), scaling(init_scale=2.0)
        for _ in range(60):
            optimizer.zero_grad()
            with amp():
                loss = F.mse_loss(model(x).float(), x.mean(1, keepdim=True)) * 1e-5
            scaler.scale(loss).backward()
            largest.append(max(float(p.grad.abs().max()) for p in model.parameters()) / 2.0)
            scaler.step(optimizer)
            scaler.update(2.0)

    largest: list[float] = []
    told = findings_of(loop)["static-scale-too-low"]
    best = told.evidence["best_scale"]
    # The largest gradient fits with one doubling in reserve, and not with two more.
    assert best * max(largest) * 2 <= 65504 < best * max(largest) * 8
    assert math.log2(best) == int(math.log2(best))


def test_a_fixed_scale_that_is_too_high_names_one_that_fits() -> None:
    def loop() -> None:
        model = mlp(32, 64)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 1e-6), scaling(init_scale=2.0**14)
        for step in range(60):
            x = torch.randn(64, 32)
            optimizer.zero_grad()
            with amp():
                loss = F.mse_loss(model(x).float(), x.sum(1, keepdim=True))
            scaler.scale(loss * (1 if step % 4 == 0 else 4)).backward()
            scaler.step(optimizer)
            scaler.update(2.0**14)

    told = findings_of(loop)["static-scale-too-high"]
    best = told.evidence["best_scale"]
    assert best is None or best < 2.0**14


@pytest.mark.parametrize("how", ["value", "norm"])
def test_a_clip_by_hand_is_told_with_its_limit(how: str) -> None:
    def clip(step: int, model: torch.nn.Module, *_: object) -> None:
        gradients = [parameter.grad for parameter in model.parameters()]
        norm = torch.sqrt(sum(gradient.pow(2).sum() for gradient in gradients))
        for gradient in gradients:
            if how == "value":
                gradient.clamp_(-0.25, 0.25)
            else:
                gradient.mul_(min(1.0, 2.5 / (float(norm) + 1e-6)))

    told = findings_of(lambda: train(before_step=clip))["clip-before-unscale"]
    assert told.evidence["limit"] == pytest.approx(0.25 if how == "value" else 2.5, rel=1e-3)


@pytest.mark.parametrize(
    ("calls", "rule", "words"),
    [
        ("scale step scale step", "scaler-call-order", "update() is missing"),
        ("scale unscale unscale", "scaler-call-order", "a second time without scaler.update()"),
        ("scale step update update", "scaler-call-order", "it is called twice"),
        ("step", "scaler-call-order", "backward ran on a loss that was not scaled"),
    ],
)
def test_the_finding_stands_beside_the_words_of_torch(calls: str, rule: str, words: str) -> None:
    def loop() -> None:
        model = mlp()
        optimizer, scaler = torch.optim.SGD(model.parameters(), 1e-3), scaling()
        for call in ("scale step update " * 3 * (calls != "step") + calls).split():
            if call == "scale":
                optimizer.zero_grad()
                scaler.scale(mean_loss(model, torch.randn(4, 16))).backward()
            elif call == "update":
                scaler.update()
            else:
                getattr(scaler, {"unscale": "unscale_"}.get(call, call))(optimizer)

    told = findings_of(loop)[rule]
    assert words in told.message
    assert "torch says: " in told.message
    assert told.evidence["error"] in told.message
