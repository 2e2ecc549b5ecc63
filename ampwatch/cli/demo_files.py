"""The demos that came with this installation, and what they say about themselves."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from ampwatch.errors import UsageError

DEFAULT = "linear"
PACE = "STEPS_PER_SECOND"


@dataclass(frozen=True, slots=True)
class Demo:
    """What can be known of a demo without running it."""

    name: str
    path: Path
    line: str
    """The first line of its docstring."""
    pace: float | None
    """Steps a second that a person can follow."""
    options: tuple[str, ...]
    """The options of its own."""


def demo_folder() -> Path:
    """Inside the package in an installed ampwatch, beside it in a checkout."""
    package = Path(__file__).parent.parent
    for folder in (package / "demos", package.parent / "demos"):
        if (folder / f"{DEFAULT}.py").is_file():
            return folder
    raise UsageError("the demos are missing from this installation; install ampwatch again")


def demo_names() -> list[str]:
    """The default one first."""
    names = {path.stem for path in demo_folder().glob("[a-z]*.py")}
    return [DEFAULT, *sorted(names - {DEFAULT})]


def read_demo(name: str) -> Demo:
    """Raises UsageError when there is none of that name."""
    names = demo_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
        raise UsageError(f"there is no demo {name!r}; {hint}")
    path = demo_folder() / f"{name}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    line = (ast.get_docstring(tree) or "").partition("\n")[0]
    return Demo(name, path, line, _pace(tree), _options(tree))


def _pace(tree: ast.Module) -> float | None:
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and any(isinstance(name, ast.Name) and name.id == PACE for name in node.targets)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, (int, float))
        ):
            return float(node.value.value)
    return None


def _options(tree: ast.Module) -> tuple[str, ...]:
    return tuple(
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
        for argument in node.args
        if isinstance(argument, ast.Constant)
        and isinstance(argument.value, str)
        and argument.value.startswith("-")
    )
