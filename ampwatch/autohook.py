"""The hook for a script that never heard of us.

Its scalers are found where they are made, its optimizers where they step, its models where their
parameters are asked for. A script that calls :func:`ampwatch.hook` itself replaces this one by
its own.
"""

from __future__ import annotations

from ampwatch import Watch, hook
from ampwatch import host as hosts


def install(budget: float = 0.01) -> Watch:
    """Watch every optimizer of this process from now on; torch must have been imported.

    Raises:
        RuntimeError: there is nobody to report to.
    """
    if hosts.current() is None:
        raise RuntimeError("the automatic hook needs a host to report to")
    return hook(budget=budget)
