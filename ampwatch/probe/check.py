"""Does mixed precision work on this machine? Tried out, device by device; nothing is assumed."""

from __future__ import annotations

import contextlib
import copy
import math
import platform
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ampwatch.probe.dtypes import dtype_name
from ampwatch.probe.speed import matrix_speed

DTYPES = (torch.float16, torch.bfloat16)
FEATURES, CLASSES, BATCH = 16, 4, 8
SCALE = 1024.0
OVERFLOWING_GAIN = {torch.float16: 2.0**40, torch.bfloat16: math.inf}
"""What the loss is multiplied by: the gradients of the small net below are then far beyond 65504,
and well inside float32. bfloat16 reaches as far as float32: only an infinite loss overflows."""


@dataclass(slots=True)
class PathReport:
    """What came out of training in one dtype on one device; None: it was not got that far."""

    dtype: str
    autocast: bool = False
    linear_output: str | None = None
    output_sum: str | None = None
    mse_loss: str | None = None
    cross_entropy_loss: str | None = None
    gradients: str | None = None
    scaler_enabled: bool | None = None
    step_changed_weights: bool | None = None
    overflow_caught: bool | None = None
    overflow_left_weights: bool | None = None
    speed: float | None = None
    """A matrix product in this dtype: how many times as fast as in float32."""
    reasons: list[str] = field(default_factory=list)
    """Why something is not as it should be, in torch's own words."""

    @property
    def works(self) -> bool:
        """float16 needs its overflows caught; bfloat16 has the range of float32."""
        trains = self.autocast and self.step_changed_weights is True
        safe = self.overflow_caught is True and self.overflow_left_weights is True
        return trains and (safe or self.dtype == "bfloat16")


@dataclass(slots=True)
class DeviceReport:
    """One device, and what was measured on it."""

    device: str
    name: str = ""
    reason: str | None = None
    """Why it cannot be used at all."""
    paths: list[PathReport] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """Everything `ampwatch check` found out."""

    torch: str
    python: str
    system: str
    devices: list[DeviceReport]

    @property
    def works(self) -> bool:
        return any(path.works for device in self.devices for path in device.paths)


def measure() -> Report:
    """Try every device that torch knows of; takes a second or two each."""
    devices = [_measure_device(name) for name in _device_names()]
    return Report(torch.__version__, platform.python_version(), platform.platform(), devices)


def _device_names() -> list[str]:
    count = torch.cuda.device_count()
    return ["cpu", *([f"cuda:{index}" for index in range(count)] or ["cuda"]), "mps"]


def _measure_device(name: str) -> DeviceReport:
    report = DeviceReport(name)
    try:
        if name == "mps" and not torch.backends.mps.is_built():
            raise RuntimeError("Torch not compiled with MPS enabled")
        device = torch.device(name)
        torch.ones(2, device=device).sum().item()
        report.name = _hardware(device)
    except Exception as error:
        report.reason = _first_sentence(error)
        return report
    report.paths = [_measure_path(device, dtype) for dtype in DTYPES]
    return report


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    kind = platform.processor() or platform.machine()
    return f"{kind}, {torch.get_num_threads()} threads" if device.type == "cpu" else kind


def _measure_path(device: torch.device, dtype: torch.dtype) -> PathReport:
    report = PathReport(dtype_name(dtype))
    trial = _Trial(device, dtype)
    with _noted(report, "autocast"):
        _measure_dtypes(trial, report)
    if report.autocast:
        with _noted(report, "training step"):
            _measure_step(trial, report)
        with _noted(report, "overflow"):
            _measure_overflow(trial, report)
        with _noted(report, "speed"):
            report.speed = matrix_speed(device, dtype)
    return report


class _Trial:
    """A linear layer and a batch, the same on every device."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        numbers = torch.Generator().manual_seed(0)
        weight = torch.randn(CLASSES, FEATURES, generator=numbers) / math.sqrt(FEATURES)
        self.inputs = torch.randn(BATCH, FEATURES, generator=numbers).to(device)
        self.targets = torch.randn(BATCH, CLASSES, generator=numbers).to(device)
        self.labels = torch.arange(BATCH).remainder(CLASSES).to(device)
        self._model = nn.Linear(FEATURES, CLASSES)
        with torch.no_grad():
            self._model.weight.copy_(weight)
            self._model.bias.zero_()

    def model(self) -> nn.Linear:
        return copy.deepcopy(self._model).to(self.device)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype)

    def loss(self, model: nn.Linear) -> Tensor:
        with self.autocast():
            return F.mse_loss(model(self.inputs), self.targets)

    def scaler(self, scale: float) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type, init_scale=scale)


def _measure_dtypes(trial: _Trial, report: PathReport) -> None:
    model = trial.model()
    with trial.autocast():
        output = model(trial.inputs)
        total = output.sum()
        mse = F.mse_loss(output, trial.targets)
        cross_entropy = F.cross_entropy(output, trial.labels)
    torch.autograd.backward([mse])
    report.linear_output = dtype_name(output.dtype)
    report.output_sum = dtype_name(total.dtype)
    report.mse_loss = dtype_name(mse.dtype)
    report.cross_entropy_loss = dtype_name(cross_entropy.dtype)
    assert model.weight.grad is not None
    report.gradients = dtype_name(model.weight.grad.dtype)
    report.autocast = output.dtype == trial.dtype
    if not report.autocast and not report.reasons:
        report.reasons.append(f"autocast: a linear layer still gives {report.linear_output}")


def _measure_step(trial: _Trial, report: PathReport) -> None:
    model, scaler = trial.model(), trial.scaler(SCALE)
    report.scaler_enabled = scaler.is_enabled()
    before = _weights(model)
    _step(model, scaler, trial.loss(model))
    after = _weights(model)
    report.step_changed_weights = not torch.equal(before, after)
    if not bool(torch.isfinite(after).all()):
        report.step_changed_weights = False
        report.reasons.append("training step: the weights are not finite afterwards")


def _measure_overflow(trial: _Trial, report: PathReport) -> None:
    """Make gradients that do not fit, and see what the scaler does about them."""
    model, scaler = trial.model(), trial.scaler(SCALE)
    before, scale = _weights(model), scaler.get_scale()
    _step(model, scaler, trial.loss(model) * OVERFLOWING_GAIN[trial.dtype])
    assert model.weight.grad is not None
    if bool(torch.isfinite(model.weight.grad).all()):
        report.reasons.append("overflow: none could be made, the gradients stayed finite")
        return
    report.overflow_left_weights = torch.equal(before, _weights(model))
    report.overflow_caught = scaler.get_scale() < scale
    if not report.overflow_caught:
        report.reasons.append("overflow: the scaler did not back off")


def _step(model: nn.Linear, scaler: torch.amp.GradScaler, loss: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.autograd.backward([scaler.scale(loss)])
    scaler.step(optimizer)
    scaler.update()


def _weights(model: nn.Linear) -> Tensor:
    return model.weight.detach().clone()


@contextlib.contextmanager
def _noted(report: PathReport, what: str) -> Iterator[None]:
    """Turns the warnings and the error of one trial into reasons."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except Exception as error:
            texts.append(_first_sentence(error))
    texts[:0] = [_first_sentence(warning.message) for warning in caught]
    for text in texts:
        reason = f"{what}: {text}"
        if reason not in report.reasons:
            report.reasons.append(reason)


def _first_sentence(error: object) -> str:
    """torch explains some errors on two pages."""
    lines = str(error).strip().splitlines()
    first = lines[0].strip() if lines else type(error).__name__
    return first.partition(". ")[0].rstrip(".")
