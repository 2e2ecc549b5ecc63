"""Runs a script, or a function of a module, the way plain python would."""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from operator import attrgetter
from types import ModuleType, TracebackType

from ampwatch.errors import UsageError


class TargetError(UsageError):
    """What was to be run is not there, or cannot be run the way it was asked for."""


_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_function(target: str) -> bool:
    """Whether a target names a function, ``package.module:function``, and not a script."""
    return _FUNCTION.fullmatch(target) is not None and not os.path.exists(target)


def run(target: str, args: list[str]) -> None:
    """Run a target to its end; whatever it raises comes out.

    ``sys.argv``, ``sys.path[0]`` and ``__main__`` are left as the target's own: what the
    interpreter does at its end must find them too.
    """
    sys.argv = [target, *args]
    if is_function(target):
        sys.path.insert(0, os.getcwd())
        _new_main()
        _function(target)()
    else:
        path = os.path.join(os.getcwd(), target)  # not normalised, as python makes __file__
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
        main = _new_main(path)
        with open(path, "rb") as script:
            source = script.read()
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's first frame to its last."""
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    last = traceback
    while last is not None and last.tb_next is not None:
        if _is_ours(last.tb_next):  # where an interrupt was heard
            last.tb_next = None
        last = last.tb_next
    return traceback


def _is_ours(traceback: TracebackType) -> bool:
    code = traceback.tb_frame.f_code
    return os.path.dirname(code.co_filename) == os.path.dirname(__file__)


def _new_main(path: str | None = None) -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    if path is not None:
        main.__dict__.update(
            __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
        )
    sys.modules["__main__"] = main
    return main


def _function(target: str) -> Callable[[], object]:
    name, _, attributes = target.partition(":")
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise TargetError(
                f"there is no module {error.name!r} to take {target!r} from"
            ) from None
        raise
    try:
        found: object = attrgetter(attributes)(sys.modules[name])
    except AttributeError:
        raise TargetError(f"the module {name!r} has no {attributes!r}") from None
    if not callable(found):
        raise TargetError(f"{target!r} cannot be called: it is a {type(found).__name__}")
    return found
