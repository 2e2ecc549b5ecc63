"""What each demo is there to show does happen: it learns, overflows, vanishes, recovers."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import demo_scripts
import pytest
import torch
from demo_scripts import Scales
from torch import Tensor, nn


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> Scales:
    scales = Scales()
    monkeypatch.setattr("ampwatch.hook", scales.hook)
    return scales


@torch.no_grad()
def error_on_the_mean(model: nn.Module) -> float:
    """Mean squared error on fresh inputs, relative to always answering 0 (which is 1/32)."""
    x = torch.randn(4096, 32, generator=torch.Generator().manual_seed(99))
    y = x.mean(dim=1, keepdim=True)
    return (nn.functional.mse_loss(model(x), y) / y.square().mean()).item()


# linear


def test_linear_learns_the_mean(scales: Scales) -> None:
    assert error_on_the_mean(demo_scripts.train("linear", "--steps", "0")) > 0.5
    assert error_on_the_mean(demo_scripts.train("linear", "--steps", "400")) < 0.01


def test_linear_shows_growth_and_a_rhythm_of_skips_within_half_a_minute(scales: Scales) -> None:
    half_a_minute = 30 * demo_scripts.load("linear").STEPS_PER_SECOND
    demo_scripts.train("linear", "--steps", str(half_a_minute))
    assert scales.grown()[0] < 5 * 20
    assert len(scales.grown()) >= 8
    assert 3 <= len(scales.skipped()) <= half_a_minute * 0.03


@pytest.mark.parametrize(("gain", "halvings"), [(10.0, 2), (100.0, 5), (1000.0, 8)])
def test_linear_answers_enlarged_targets_at_once_and_recovers(
    scales: Scales, gain: float, halvings: int
) -> None:
    scales.gains = {300: gain, 600: 1.0}
    model = demo_scripts.train("linear", "--steps", "1000")
    at_once = scales.skipped(300, 320)
    assert at_once[:halvings] == list(range(300, 300 + halvings))  # one after the other, no gap
    assert scales.after[320] <= scales.after[299] * 0.5**halvings
    assert len(scales.skipped(400, 600)) <= 200 / 20  # the rhythm is back, at a lower scale
    assert max(scales.after[400:600]) < scales.after[299]
    assert math.isfinite(error_on_the_mean(model))
    assert scales.after[-1] > scales.after[599]  # with the small targets the scale climbs back


# underflow


def bits(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_underflow_learns_with_the_scaler(scales: Scales) -> None:
    model = demo_scripts.train("underflow", "--steps", "200")
    assert error_on_the_mean(model) < 0.02


def test_underflow_moves_no_weight_at_all_without_the_scaler(
    scales: Scales, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.amp.GradScaler", partial(torch.amp.GradScaler, enabled=False))
    start = demo_scripts.train("underflow", "--steps", "0")
    model = demo_scripts.train("underflow", "--steps", "600")
    assert torch.equal(bits(model), bits(start))
    assert all(torch.count_nonzero(p.grad) == 0 for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_underflow_learns_without_a_scaler_where_the_range_is_wide(
    scales: Scales, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    monkeypatch.setattr("torch.amp.GradScaler", partial(torch.amp.GradScaler, enabled=False))
    autocast = torch.autocast
    enabled = dtype is not torch.float32
    lower = dtype if enabled else None
    monkeypatch.setattr("torch.autocast", lambda device, _: autocast(device, lower, enabled))
    model = demo_scripts.train("underflow", "--steps", "200")
    assert error_on_the_mean(model) < 0.02
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert torch.count_nonzero(gradients) > 0.9 * gradients.numel()


def test_underflow_asks_something_new_again_and_again(scales: Scales) -> None:
    assert error_on_the_mean(demo_scripts.train("underflow", "--steps", "400")) > 0.5


# digits


def test_digits_are_the_uci_test_set() -> None:
    pictures = demo_scripts.load("digits").read_digits()
    assert pictures.train_x.shape == (1500, 3, 32, 32)
    assert pictures.test_x.shape == (297, 3, 32, 32)
    labels = Counter(torch.cat([pictures.train_y, pictures.test_y]).tolist())
    # The counts of each digit in optdigits.tes, from the data set's own description.
    counts = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
    assert [labels[digit] for digit in range(10)] == list(counts)
    assert pictures.train_x.min() == 0
    assert pictures.train_x.max() == 255
    assert torch.equal(pictures.train_x[:, 0], pictures.train_x[:, 2])


def test_digits_are_read_ever_better_in_spite_of_skips(scales: Scales) -> None:
    demo_scripts.train("digits", "--steps", "120")
    accuracy = scales.metrics["accuracy"]
    assert len(accuracy) == 6
    assert accuracy[0] < 0.7
    assert accuracy[-1] > 0.8
    assert 1 <= len(scales.skipped()) <= 6


def test_digits_accuracy_is_the_share_of_right_answers(scales: Scales) -> None:
    digits = demo_scripts.load("digits")
    model = digits.main(["--device", "cpu", "--steps", "20"])
    pictures = digits.read_digits()
    model.eval()
    right = sum(
        int(model(digits.as_input(x[None])).argmax() == y)
        for x, y in zip(pictures.test_x, pictures.test_y, strict=True)
    )
    assert scales.metrics["accuracy"] == [pytest.approx(right / 297)]


# chargpt


def entropy(text: str) -> float:
    """What the best guess costs that knows how frequent characters are, but not the context."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log(share) for share in shares)


def test_chargpt_learns_from_context(scales: Scales) -> None:
    chargpt = demo_scripts.load("chargpt")
    text = chargpt.TEXT.read_text()
    assert text.startswith("GLOUCESTER:\nNow is the winter of our discontent\n")
    chargpt.main(["--device", "cpu", "--steps", "50"])
    (held_out_loss,) = scales.metrics["held_out_loss"]
    assert held_out_loss < entropy(text) - 0.2


def test_chargpt_looks_only_backwards() -> None:
    chargpt = demo_scripts.load("chargpt")
    torch.manual_seed(0)
    model = chargpt.CharGPT(10)
    text = torch.arange(8)[None] % 10
    changed = text.clone()
    changed[0, 5] = 9
    same = (model(text) == model(changed)).all(dim=-1)[0]
    assert same.tolist() == [True] * 5 + [False] * 3


def test_chargpt_schedule_waits_for_skipped_steps(
    scales: Scales, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []

    class Watched(torch.optim.lr_scheduler.LinearLR):
        def step(self, epoch: int | None = None) -> None:
            super().step()
            rates.append(self.get_last_lr()[0])

    monkeypatch.setattr("torch.optim.lr_scheduler.LinearLR", Watched)
    huge = partial(torch.amp.GradScaler, init_scale=2.0**24)
    monkeypatch.setattr("torch.amp.GradScaler", huge)
    demo_scripts.train("chargpt", "--steps", "10")
    skipped = len(scales.skipped())
    assert skipped >= 2
    # A scheduler takes one step of its own when it is made.
    assert len(rates) == 1 + 10 - skipped
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(3e-3 * (1 / 50 + (10 - skipped) / 50 * (1 - 1 / 50)))


# gan


def test_gan_fills_the_circle_without_a_flood_of_skips(scales: Scales) -> None:
    gan = demo_scripts.load("gan")
    gan.main(["--device", "cpu", "--steps", "1000"])
    share = scales.metrics["on_circle"]
    assert share[-1] > 0.2
    assert share[-1] > share[0] + 0.1
    assert len(scales.skipped()) <= 1000 * 0.03


def test_gan_steps_both_optimizers_and_updates_the_scale_once_a_round(
    scales: Scales, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Counted(torch.amp.GradScaler):
        def step(self, optimizer, *args, **kwargs):
            calls.append("step")
            return super().step(optimizer, *args, **kwargs)

        def update(self, new_scale=None):
            calls.append("update")
            super().update(new_scale)

    monkeypatch.setattr("torch.amp.GradScaler", Counted)
    before = demo_scripts.train("gan", "--steps", "0").state_dict()
    after = demo_scripts.train("gan", "--steps", "3").state_dict()
    assert calls == ["step", "step", "update"] * 3
    assert all(not torch.equal(before[key], after[key]) for key in before)


# clipping


@torch.no_grad()
def error_on(model: nn.Module, target: Tensor, x: Tensor) -> float:
    return (nn.functional.mse_loss(model(x), target) / target.square().mean()).item()


def test_clipping_after_unscale_learns_and_clipping_before_it_hardly_does(scales: Scales) -> None:
    both = demo_scripts.train("clipping", "--steps", "300")
    x = torch.randn(4096, 32, generator=torch.Generator().manual_seed(99))
    y = x.sum(dim=1, keepdim=True) / 32**0.5
    assert error_on(both["after"], y, x) < 0.02
    assert error_on(both["before"], y, x) > 0.8


def test_clipping_in_the_wrong_order_does_no_harm_without_a_scaler(
    scales: Scales, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.amp.GradScaler", partial(torch.amp.GradScaler, enabled=False))
    both = demo_scripts.train("clipping", "--steps", "50")
    assert torch.equal(bits(both["after"]), bits(both["before"]))


# rounding


def test_rounding_most_bf16_weights_stand_still_and_their_net_stays_behind(scales: Scales) -> None:
    both = demo_scripts.train("rounding", "--steps", "400")
    still, still_fp32 = scales.metrics["still"], scales.metrics["still_fp32"]
    assert sum(still[100:]) / 300 > 0.5
    assert sum(still_fp32[100:]) / 300 < 0.1  # of skipped steps alone
    assert {p.dtype for p in both["bf16"].parameters()} == {torch.bfloat16}
    assert error_on_the_mean(both["bf16"].float()) > 1.5 * error_on_the_mean(both["fp32"])


# forward


@torch.no_grad()
def error_on_the_energy(model: nn.Module, gain: float = 1.0) -> float:
    x = torch.randn(4096, 32, generator=torch.Generator().manual_seed(99)) * gain
    y = x.square().mean(dim=1, keepdim=True)
    return (nn.functional.mse_loss(model(x), y) / (y - y.mean()).square().mean()).item()


def test_forward_learns_the_energy(scales: Scales) -> None:
    assert error_on_the_energy(demo_scripts.train("forward", "--steps", "0")) > 0.5
    assert error_on_the_energy(demo_scripts.train("forward", "--steps", "600")) < 0.05


def test_forward_recovers_from_a_tenfold_signal_and_not_from_a_thousandfold(
    scales: Scales,
) -> None:
    scales.gains = {100: 10.0, 200: 1.0, 300: 1000.0}
    demo_scripts.train("forward", "--steps", "360")
    assert len(scales.skipped(100, 200)) < 20
    assert scales.skipped(150, 200) == [] or len(scales.skipped(150, 200)) < 5
    assert scales.skipped(300, 360) == list(range(300, 360))


def test_forward_is_finite_in_bf16_at_a_thousandfold_signal(
    scales: Scales, monkeypatch: pytest.MonkeyPatch
) -> None:
    autocast = torch.autocast
    monkeypatch.setattr("torch.autocast", lambda device, _: autocast(device, torch.bfloat16))
    scales.gains = {50: 1000.0}
    model = demo_scripts.train("forward", "--steps", "80")
    assert scales.skipped() == [] or max(scales.skipped()) < 60
    assert all(torch.isfinite(p).all() for p in model.parameters())
