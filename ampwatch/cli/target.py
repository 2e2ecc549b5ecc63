"""Is there something to run? Asked before a screen is opened, answered in one sentence."""

from __future__ import annotations

import ast
import difflib
import os
import sys
import tokenize
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ampwatch.errors import UsageError
from ampwatch.runner.mainscript import is_function

LOOKED_AT_BYTES = 8192


def check_target(target: str) -> None:
    """Raises UsageError for what is plainly no script and no ``MODULE:FUNCTION``.

    Nothing is imported or run: what cannot be decided like that is left to the script's process.
    """
    if is_function(target):
        _check_function(target)
    else:
        _check_script(target)


def _check_script(target: str) -> None:
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"{target} is a folder; name the script in it")
    try:
        with path.open("rb") as file:
            start = file.read(LOOKED_AT_BYTES)
    except FileNotFoundError:
        raise UsageError(f"there is no script {target}{_nearby(path)}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"the script {target} cannot be read: {reason}") from None
    if path.suffix == ".ipynb":
        raise UsageError(f"{target} is a notebook; save it as a script first")
    shebang = start.partition(b"\n")[0]
    if b"\0" in start or (shebang.startswith(b"#!") and b"python" not in shebang):
        raise UsageError(f"{target} is not a Python script")
    try:
        with tokenize.open(path) as text:
            text.read()
    except (SyntaxError, UnicodeDecodeError):
        raise UsageError(f"{target} is not a Python script: it is not text") from None


def _nearby(path: Path) -> str:
    """A script in the same folder with almost the same name."""
    try:
        names = [each.name for each in path.parent.iterdir() if each.suffix == ".py"]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, 1)
    return f"; did you mean {path.with_name(near[0])}?" if near else ""


def _check_function(target: str) -> None:
    module, _, function = target.partition(":")
    spec = _find(module)
    if spec is None:
        raise UsageError(f"there is no module {module!r} to take {target!r} from")
    if spec.origin is None or not spec.origin.endswith(".py"):
        return
    try:
        with tokenize.open(spec.origin) as text:
            tree = ast.parse(text.read())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return  # the import will say it better
    names = _top_level(tree)
    first = function.partition(".")[0]
    if names is not None and first not in names:
        near = difflib.get_close_matches(first, names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"the module {module!r} has no {first!r}{hint}")


def _find(module: str) -> ModuleSpec | None:
    """Where a module is, without importing the packages it lies in."""
    path: list[str] | None = [os.getcwd(), *sys.path[1:]]
    spec: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            known = name in sys.builtin_module_names or name in sys.modules
            return ModuleSpec(name, None) if known else None
        path = list(spec.submodule_search_locations or ())
    return spec


def _top_level(tree: ast.Module) -> set[str] | None:
    """The names a module binds, or None where that cannot be told from its text."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((each.asname or each.name).partition(".")[0] for each in node.names)
    return None if {"*", "__getattr__", "globals"} & names else names
