"""`ampwatch check`: does mixed precision work on this machine?"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.text import Text

    from ampwatch.probe.check import PathReport, Report

LINES: tuple[tuple[str, str], ...] = (
    ("autocast available", "autocast"),
    ("a linear layer's output", "linear_output"),
    ("its sum", "output_sum"),
    ("mean squared error", "mse_loss"),
    ("cross-entropy", "cross_entropy_loss"),
    ("gradients of the weights", "gradients"),
    ("scaler enabled", "scaler_enabled"),
    ("one step changed the weights", "step_changed_weights"),
    ("overflow caught, step skipped", "overflow_caught"),
    ("weights unchanged by it", "overflow_left_weights"),
    ("matrix product, times float32", "speed"),
    ("usable for training", "works"),
)
GOOD, BAD = "green", "bold red"


@click.command(name="check")
@click.option("--json", "json_output", is_flag=True, help="The same as one JSON object.")
def command(json_output: bool) -> int:
    """Try out mixed precision on this machine.

    Trains a few steps in float16 and bfloat16 on every device that torch finds, makes an overflow
    on purpose, and says what happened. Exit code 0 when at least one of them works.
    """
    try:
        from ampwatch.probe.check import measure
    except Exception as error:  # a broken torch fails in many ways
        click.echo(f"ampwatch: torch cannot be imported: {error}", err=True)
        return 1
    report = measure()
    if json_output:
        click.echo(json.dumps(_as_json(report), indent=2))
    else:
        _print(report)
    return 0 if report.works else 1


def _as_json(report: Report) -> dict[str, object]:
    body = asdict(report)
    for device, shown in zip(report.devices, body["devices"], strict=True):
        for path, line in zip(device.paths, shown["paths"], strict=True):
            line["works"] = path.works
    return {**body, "works": report.works}


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"torch {report.torch}, python {report.python}, {report.system}"))
    for device in report.devices:
        console.print()
        if device.reason is not None:
            console.print(Text.assemble((device.device, "bold"), f"  not usable: {device.reason}"))
            continue
        title = Text.assemble((device.device, "bold"), f"  {device.name}")
        console.print(title)
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        table.add_column("  measured")
        for path in device.paths:
            table.add_column(path.dtype)
        for words, name in LINES:
            table.add_row(f"  {words}", *(_cell(path, name) for path in device.paths))
        console.print(table)
        for path in device.paths:
            for reason in path.reasons:
                console.print(Text(f"  {path.dtype}: {reason}"))
    console.print()
    verdict = (
        Text("Mixed precision works on this machine.", GOOD)
        if report.works
        else Text("Mixed precision does not work on this machine.", BAD)
    )
    console.print(verdict)


def _cell(path: PathReport, name: str) -> Text:
    from rich.text import Text

    value = getattr(path, name)
    if value is None:
        return Text("not measured", "dim")
    if isinstance(value, bool):
        return Text("yes", GOOD) if value else Text("no", BAD)
    return Text(f"{value:.2g}" if isinstance(value, float) else str(value))
