"""`ampwatch check` says what torch does here, measured again in the plainest way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from click.testing import CliRunner
from torch.nn import functional as F

from ampwatch.cli import main
from ampwatch.probe import check, speed
from ampwatch.probe.check import DeviceReport, PathReport, Report


@pytest.fixture(scope="module")
def cpu() -> Iterator[DeviceReport]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "SPEED_SECONDS", 0.0)
        yield check._measure_device("cpu")


def test_every_dtype_is_the_one_torch_gives(cpu: DeviceReport) -> None:
    for path in cpu.paths:
        dtype = getattr(torch, path.dtype)
        layer = torch.nn.Linear(4, 3)
        with torch.autocast("cpu", dtype):
            output = layer(torch.ones(2, 4))
            total = output.sum()
            loss = F.cross_entropy(output, torch.tensor([0, 1]))
            mse = F.mse_loss(output, torch.ones(2, 3))
        loss.backward()
        assert layer.weight.grad is not None
        measured = [path.linear_output, path.output_sum, path.cross_entropy_loss, path.mse_loss]
        assert measured == [str(t.dtype).split(".")[1] for t in (output, total, loss, mse)]
        assert path.gradients == str(layer.weight.grad.dtype).split(".")[1]


def test_both_dtypes_are_tried_and_work_on_a_cpu(cpu: DeviceReport) -> None:
    assert [path.dtype for path in cpu.paths] == ["float16", "bfloat16"]
    for path in cpu.paths:
        assert path.works, path
        assert path.reasons == []
        assert path.speed is not None
        assert path.speed > 0


def test_a_scaler_that_does_not_skip_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scaler that steps whatever the gradients are: both lines must say no."""

    class Careless(torch.amp.GradScaler):
        def step(self, optimizer: torch.optim.Optimizer, *args: object, **kw: object) -> None:
            optimizer.step()

        def update(self, new_scale: object = None) -> None: ...

    monkeypatch.setattr(torch.amp, "GradScaler", Careless)
    monkeypatch.setattr(speed, "SPEED_SECONDS", 0.0)
    half = check._measure_path(torch.device("cpu"), torch.float16)
    assert half.overflow_caught is False
    assert half.overflow_left_weights is False
    assert not half.works
    assert "overflow: the scaler did not back off" in half.reasons


def test_an_optimizer_that_does_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self, closure=None: None)
    monkeypatch.setattr(speed, "SPEED_SECONDS", 0.0)
    for dtype in check.DTYPES:
        path = check._measure_path(torch.device("cpu"), dtype)
        assert path.step_changed_weights is False
        assert not path.works


def test_a_disabled_scaler_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def disabled(device: str, init_scale: float) -> torch.amp.GradScaler:
        return scaler(device, init_scale=init_scale, enabled=False)

    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", disabled)
    monkeypatch.setattr(speed, "SPEED_SECONDS", 0.0)
    half = check._measure_path(torch.device("cpu"), torch.float16)
    assert half.scaler_enabled is False
    assert half.overflow_caught is False
    assert not half.works


def test_what_torch_says_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kw: object) -> None:
        raise RuntimeError("no kernel here. See the manual.\nAnd more lines.")

    monkeypatch.setattr(check.F, "mse_loss", refuse)
    half = check._measure_path(torch.device("cpu"), torch.float16)
    assert half.reasons == ["autocast: no kernel here"]
    assert half.linear_output is None
    assert not half.works


def test_an_autocast_that_disables_itself_is_no_autocast() -> None:
    path = check._measure_path(torch.device("cpu"), torch.float64)
    assert not path.autocast
    assert path.step_changed_weights is None
    assert any("not supported" in reason for reason in path.reasons)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_has_torchs_reason() -> None:
    report = check._measure_device("cuda")
    with pytest.raises((AssertionError, RuntimeError)) as error:
        torch.ones(1, device="cuda")
    assert report.reason is not None
    assert str(error.value).startswith(report.reason)
    assert report.paths == []


@pytest.mark.gpu
def test_both_dtypes_work_on_a_cuda_device() -> None:
    for path in check._measure_device("cuda:0").paths:
        assert path.works, path


def _report(*paths: PathReport) -> Report:
    bad = DeviceReport("cuda", reason="Torch not compiled with CUDA enabled")
    return Report("2.13", "3.12", "Linux", [DeviceReport("cpu", "a cpu", None, list(paths)), bad])


WORKING = PathReport(
    dtype="float16",
    autocast=True,
    linear_output="float16",
    output_sum="float16",
    mse_loss="float32",
    cross_entropy_loss="float32",
    gradients="float32",
    scaler_enabled=True,
    step_changed_weights=True,
    overflow_caught=True,
    overflow_left_weights=True,
    speed=1.5,
)
UNSUPPORTED = PathReport(dtype="bfloat16", reasons=["autocast: no bfloat16 on this device"])


def test_the_table_fits_eighty_columns_and_says_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "measure", lambda: _report(WORKING, UNSUPPORTED))
    shown = CliRunner().invoke(main, ["check"])
    assert shown.exit_code == 0
    assert "\x1b" not in shown.stdout
    lines = [line.rstrip() for line in shown.stdout.splitlines()]
    assert max(map(len, lines)) <= 80
    rows = {line[:32].strip(): line[32:].split() for line in lines}
    assert rows["a linear layer's output"] == ["float16", "not", "measured"]
    assert rows["overflow caught, step skipped"] == ["yes", "not", "measured"]
    assert rows["usable for training"] == ["yes", "no"]
    assert "  bfloat16: autocast: no bfloat16 on this device" in lines
    assert "cuda  not usable: Torch not compiled with CUDA enabled" in lines


def test_json_carries_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "measure", lambda: _report(WORKING, UNSUPPORTED))
    body = json.loads(CliRunner().invoke(main, ["check", "--json"]).stdout)
    assert body["works"] is True
    assert [path["works"] for path in body["devices"][0]["paths"]] == [True, False]
    assert body["devices"][0]["paths"][0]["linear_output"] == "float16"
    assert body["devices"][1]["reason"] == "Torch not compiled with CUDA enabled"


@pytest.mark.parametrize("arguments", [["check"], ["check", "--json"]])
def test_the_exit_code_is_one_when_nothing_works(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(check, "measure", lambda: _report(UNSUPPORTED))
    assert CliRunner().invoke(main, arguments).exit_code == 1


def test_a_torch_that_cannot_be_imported_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ampwatch.probe.check", None)
    shown = CliRunner().invoke(main, ["check"])
    assert shown.exit_code == 1
    assert shown.stderr.startswith("ampwatch: torch cannot be imported")
