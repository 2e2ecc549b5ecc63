"""What the README says is so."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import nn

import ampwatch
from ampwatch.cli.options import Options
from ampwatch.tui.key_table import with_key_table

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_table_of_keys_is_the_bindings_own() -> None:
    assert with_key_table(README) == README, "run: python -m ampwatch.tui.key_table README.md"


def test_there_is_one_command_to_try_it_and_one_to_test_it() -> None:
    commands = re.findall(r"^\$ (.*)$", README, re.MULTILINE)
    assert sum("ampwatch demo" in command for command in commands) == 1
    assert sum("pytest" in command for command in commands) == 1


def test_the_pictures_it_shows_are_there() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert pictures
    for picture in pictures:
        assert (REPOSITORY / picture).is_file(), picture


def test_the_six_lines_of_the_hook_run_as_they_stand() -> None:
    """On the CPU: only the device differs."""
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(block.strip().splitlines()) <= 7
    model = nn.Linear(4, 1)
    names = {
        "torch": torch,
        "ampwatch": ampwatch,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "scaler": torch.amp.GradScaler("cpu"),
        "loader": [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(5)],
        "loss_fn": nn.functional.mse_loss,
    }
    exec(block.replace('"cuda"', '"cpu"'), names)
    watch = names["watch"]
    assert isinstance(watch, ampwatch.Watch)
    watch.close()
    assert watch.summary().startswith("ampwatch saw 5 steps in float16.")


def test_every_option_of_a_run_is_explained() -> None:
    for option in Options.__dataclass_fields__:
        flag = {"json_output": "json"}.get(option, option.replace("_", "-"))
        assert f"`--{flag}" in README, flag
