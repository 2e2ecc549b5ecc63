"""Each demo is a plain script, says what to do, and tells the same story for the same seed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import demo_scripts
import pytest
import torch

STEPS = {
    "linear": 30,
    "digits": 21,
    "chargpt": 3,
    "gan": 51,
    "underflow": 201,
    "clipping": 30,
    "rounding": 30,
    "forward": 30,
}
SHORT = {
    "linear": 60,
    "digits": 6,
    "chargpt": 3,
    "gan": 55,
    "underflow": 60,
    "clipping": 60,
    "rounding": 60,
    "forward": 60,
}
every_demo = pytest.mark.parametrize("name", demo_scripts.NAMES)


def test_the_folder_holds_these_demos_and_no_other_script() -> None:
    assert {file.stem for file in demo_scripts.FOLDER.glob("*.py")} == set(demo_scripts.NAMES)


@every_demo
def test_plain_python_runs_it_from_anywhere(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(demo_scripts.path(name)), "--steps", str(STEPS[name])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@every_demo
def test_the_same_seed_gives_the_same_weights_to_the_last_bit(name: str) -> None:
    steps = ("--steps", str(SHORT[name]))
    first, again, other = (
        demo_scripts.train(name, *steps, "--seed", seed).state_dict() for seed in ("3", "3", "4")
    )
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


@every_demo
def test_training_is_the_same_with_the_hook_as_without(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = ("--steps", str(SHORT[name]))
    hooked = demo_scripts.train(name, *steps).state_dict()
    monkeypatch.setattr("ampwatch.hook", demo_scripts.Scales().hook)
    plain = demo_scripts.train(name, *steps).state_dict()
    assert all(torch.equal(hooked[key], plain[key]) for key in hooked)


@every_demo
def test_it_says_what_to_look_at_and_which_keys_to_press(name: str) -> None:
    text = ast.get_docstring(demo_scripts.tree(name))
    assert text is not None
    title, empty = text.splitlines()[:2]
    assert len(title) <= 68  # with its name before it, one line of 80 columns
    assert title.endswith(".")
    assert empty == ""
    _, keys = text.split("What to try\n")
    words = keys.replace(",", " ").split()
    for key in ("t", "T", "0", "d", "s", "[", "]", "i", "g", "G", "<", ">", "r"):
        assert key in words, f"the {name} demo does not mention {key}"


@every_demo
def test_its_pace_is_a_number_that_can_be_read_without_running_it(name: str) -> None:
    paces = [
        ast.literal_eval(statement.value)
        for statement in demo_scripts.tree(name).body
        if isinstance(statement, ast.Assign)
        and [ast.unparse(target) for target in statement.targets] == ["STEPS_PER_SECOND"]
    ]
    assert len(paces) == 1
    assert 5 <= paces[0] <= 60


@every_demo
def test_it_uses_only_the_public_names(name: str) -> None:
    used = {
        node.attr
        for node in ast.walk(demo_scripts.tree(name))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("ampwatch", "watch")
    }
    assert used <= {"hook", "steps", "target_gain", "log", "summary"}
    assert {"hook", "steps", "summary"} <= used
