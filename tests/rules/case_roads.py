"""The three roads on which a script that knows nothing of ampwatch comes to its diagnosis.

``hooked`` puts the one line into the script that its author would write, ``watched`` is
``ampwatch run`` on the script as it is, and ``diagnosed`` examines a log afterwards.
"""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from click.testing import CliRunner
from torch import nn

import ampwatch
from ampwatch.cli import main

TIMEOUT_SECONDS = 120


class NoPlace(Exception):
    """Nothing in a script loops around a ``backward()``."""


def hooked(script: Path, log: Path) -> str | None:
    """Run a script with ``ampwatch.hook(model, optimizer, scaler, log=log)`` before its loop.

    Returns:
        The error that ended it, if one did.

    Raises:
        NoPlace: there is no loop to watch.
    """
    tree = with_statement(
        script.read_text(encoding="utf-8"), "watch_what_there_is({**globals(), **locals()})"
    )
    with contextlib.ExitStack() as watching:

        def watch_what_there_is(names: dict[str, Any]) -> None:
            # Which they are is seen from what they are: every script has names of its own.
            model, optimizer, scaler = (
                _one_or_all(names, kind)
                for kind in (nn.Module, torch.optim.Optimizer, torch.amp.GradScaler)
            )
            watching.enter_context(ampwatch.hook(model, optimizer, scaler, log=str(log)))

        names = {"__name__": "__main__", "watch_what_there_is": watch_what_there_is}
        try:
            with watching:
                exec(compile(tree, str(script), "exec"), names)
        except NoPlace:
            raise
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None


def _one_or_all(names: dict[str, Any], kind: type) -> Any:
    each = list({id(value): value for value in names.values() if isinstance(value, kind)}.values())
    return each[0] if len(each) == 1 else each or None


def with_statement(source: str, statement: str) -> ast.Module:
    """The script with one more statement, right before the outermost loop that trains.

    Raises:
        NoPlace: there is no such loop.
    """
    tree = ast.parse(source)
    body, position = _place(tree.body)
    body.insert(position, ast.parse(statement).body[0])
    return ast.fix_missing_locations(tree)


def _place(body: list[ast.stmt]) -> tuple[list[ast.stmt], int]:
    for position, statement in enumerate(body):
        if not _goes_back(statement):
            continue
        if isinstance(statement, (ast.For, ast.While)):
            return body, position
        for inner in (getattr(statement, "body", []), getattr(statement, "orelse", [])):
            if any(map(_goes_back, inner)):
                return _place(inner)
    raise NoPlace


def _goes_back(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(statement)
    )


def watched(script: Path, log: Path) -> dict[str, Any]:
    """The summary of ``ampwatch run`` on the script as it is."""
    command = [sys.executable, "-m", "ampwatch", "run", "--headless", "--json", "--log", str(log)]
    done = subprocess.run(
        [*command, str(script)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert "stopped watching" not in done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def diagnosed(log: Path) -> dict[str, Any]:
    """What ``ampwatch diagnose --json`` says of a log."""
    done = CliRunner().invoke(main, ["diagnose", "--json", str(log)])
    assert (done.exit_code, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def faults(summary: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """What of a summary is not as a right diagnosis has it."""
    found = {finding["rule"]: finding["severity"] for finding in summary["findings"]}
    allowed = {*expected["must"], *expected["may"]}
    wrong = [f"{rule} was not found" for rule in expected["must"] if rule not in found]
    wrong += [
        f"{rule} ({severity}) is no mistake of this loop"
        for rule, severity in found.items()
        if severity != "info" and rule not in allowed
    ]
    for key in ("status", "skipped", "error"):
        if summary[key] != expected[key]:
            wrong.append(f"{key} is {summary[key]!r}, not {expected[key]!r}")
    if summary["skipped_steps"] != expected["skipped_at"]:
        wrong.append(f"skipped at {summary['skipped_steps']}")
    return wrong
