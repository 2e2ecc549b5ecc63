"""Calls back right after a script has imported a certain module, and leaves no trace."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call ``callback`` with the module ``name``, once: when it has been imported, or now.

    Nothing is collected as garbage meanwhile: torch is there a third sooner.
    The callback runs before the script's ``import`` statement is done; what it raises comes out
    of that statement.
    """
    if name in sys.modules:
        callback(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, callback))


class _Finder:
    """Finds the one module by asking all other finders, and puts itself before its loader."""

    def __init__(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.callback = callback

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        # Off the list for good when the module is loaded; back on it when it cannot be.
        sys.meta_path.remove(self)
        spec = None
        try:
            spec = importlib.util.find_spec(name)
        finally:
            if spec is None or spec.loader is None:
                sys.meta_path.insert(0, self)
            else:
                spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(Loader):
    """The module's own loader, with a call at the end."""

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self.loader = loader
        self.finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        collecting = gc.isenabled()
        gc.disable()  # torch makes millions of objects that stay: looking through them is half
        try:  # of its import time
            self.loader.exec_module(module)
        except BaseException:
            sys.meta_path.insert(0, self.finder)  # the script may try again
            raise
        finally:
            if collecting:
                gc.enable()
        self.finder.callback(module)
