"""A terminal dashboard for the numerical health of a PyTorch mixed-precision training run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampwatch.watch import Watch as Watch
    from ampwatch.watch import hook as hook

__version__ = "0.1.0"
__all__ = ["Watch", "__version__", "hook"]


def __getattr__(name: str) -> Any:
    """The public names are loaded on first use: `ampwatch --help` must not wait for torch."""
    if name in ("hook", "Watch"):
        import importlib

        module = importlib.import_module("ampwatch.watch")
        globals().update(hook=module.hook, Watch=module.Watch)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
