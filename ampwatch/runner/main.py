"""What the child process does: run the script as plain python would, and report how it ended.

Everything here is over before the script's first line, or comes after its last one. torch is not
imported: when the script does it, the automatic hook is put in place.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import os
import sys
import traceback
from types import ModuleType
from typing import Any, NoReturn

from ampwatch import controls, host
from ampwatch.controls import Request
from ampwatch.errors import AmpwatchError
from ampwatch.feed import Feed
from ampwatch.host import Host
from ampwatch.record import Notice
from ampwatch.runner import mainscript
from ampwatch.runner.imports import after_import
from ampwatch.runner.interrupts import tell_when_heard
from ampwatch.runner.settings import Child, Settings

NO_KEYBOARD = (
    "ampwatch runs the script without a keyboard: pass what it asks for as an argument, "
    "or read it from a file"
)
ERROR_CHARACTERS = 500
_LINE_BUFFERED = 1  # _IOLBF of C


def main() -> NoReturn:
    """Run ``CONFIG TARGET [ARGS…]`` from the command line and exit as the script would."""
    config, target, *args = sys.argv[1:]
    child = Child.from_json(config)
    for fd in (child.records, child.requests, child.heard):
        os.set_inheritable(fd, False)  # not for the script's own children
    _live_output()
    _no_keyboard()
    tell_when_heard(child.heard)
    settings = child.settings
    sys.argv = [target, *args]
    here = Host(
        Feed(child.records),
        child.requests,
        _log(settings.log),
        steps=settings.steps,
        rate=settings.rate,
        name=settings.name,
        initial=[Request(knob, value) for knob, value in _initial(settings) if value is not None],
        measures_memory=settings.memory,
    )
    host.install(here)
    here.put(here.info)
    if settings.rate is not None:
        here.put(Notice("", controls.SPEED.name, settings.rate))
    ending = _Ending(here)
    # Registered first, so called last: after the script's threads and its own exit functions.
    atexit.register(ending.report)
    _prepare(here, settings, ending)
    sys.exit(ending.of(target, args))


class _Ending:
    """How the script ended: its exit code, and its last word to the screen and the log."""

    def __init__(self, here: Host) -> None:
        self._host = here
        self._status = "failed"
        self._error: str | None = None
        self.watch: Any = None
        """The automatic hook, once the script has imported torch."""

    def report(self) -> None:
        if self.watch is not None:
            with contextlib.suppress(Exception):
                self.watch.close()
        self._host.close(self._status, self._error)

    def of(self, target: str, args: list[str]) -> int:
        """Run the target; its exit code as plain python would give it."""
        code = self._run(target, args)
        if self._host.stopped_by == "user":
            self._status, self._error = "stopped", None
        elif self._host.stopped_by == "steps" and self._error is None:
            self._status, code = "finished", 0
        return code

    def _run(self, target: str, args: list[str]) -> int:
        try:
            mainscript.run(target, args)
        except SystemExit as leaving:
            return self._left(leaving.code)
        except host.StopTraining:
            self._status = "stopped"
            return 130
        except mainscript.TargetError as error:
            self._error = str(error)
            _print(f"ampwatch: {error}")
            return error.exit_code
        except BaseException as error:
            error = error.with_traceback(mainscript.without_our_frames(error.__traceback__))
            sys.excepthook(type(error), error, error.__traceback__)
            if isinstance(error, KeyboardInterrupt):
                self._status = "stopped"
                return 130
            self._error = _one_line(traceback.format_exception_only(type(error), error)[-1])
            return 1
        self._status = "finished"
        return 0

    def _left(self, code: Any) -> int:
        """What ``sys.exit(code)`` means."""
        if code is None or (isinstance(code, int) and code & 0xFF == 0):
            self._status = "finished"
            return 0
        if isinstance(code, int):
            self._error = f"exit code {code & 0xFF}"
            return int(code)
        _print(str(code))
        self._error = _one_line(str(code))
        return 1


def _initial(settings: Settings) -> list[tuple[str, str | None]]:
    return [(controls.DTYPE.name, settings.dtype), (controls.SCALER.name, settings.scaler)]


def _prepare(here: Host, settings: Settings, ending: _Ending) -> None:
    """What has to happen before the script's first line, or as soon as it imports something."""
    seed = settings.seed
    if seed is not None:
        import random

        random.seed(seed)
        after_import("numpy.random", lambda numpy_random: numpy_random.seed(seed % 2**32))

    def torch_is_there(torch: ModuleType) -> None:
        if seed is not None:
            torch.manual_seed(seed)
        if settings.device is not None:
            _use_device(torch, settings.device)
        try:
            from ampwatch import autohook

            ending.watch = autohook.install()
        except Exception as error:  # whatever goes wrong with us is not the script's business
            reason = f"{type(error).__name__}: {error}"
            here.say(f"ampwatch cannot watch this script by itself: {reason}")

    after_import("torch", torch_is_there)
    after_import("torch._dynamo", lambda _: None)  # as large again; the first optimizer needs it


def _use_device(torch: Any, device: str) -> None:
    try:
        torch.set_default_device(device)
        torch.empty(0)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise mainscript.TargetError(f"--device {device} cannot be used here: {reason}") from None


def _log(path: str | None) -> Any:
    if path is None:
        return None
    from ampwatch.log import LogWriter

    try:
        return LogWriter(path)
    except (AmpwatchError, OSError) as error:
        _print(f"ampwatch: the log {path} cannot be written: {error}")
        sys.exit(2)


def _live_output() -> None:
    """Lines arrive when they are printed, as on a terminal: from Python, from C, from children."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        libc = ctypes.CDLL(None)
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, _LINE_BUFFERED, 0)


def _no_keyboard() -> None:
    """A script that asks for input is told why it gets none."""
    keyboard, ask = sys.stdin, builtins.input

    def input(prompt: object = "", /) -> str:  # noqa: A001
        try:
            return ask(prompt)
        except EOFError:
            if sys.stdin is keyboard:
                raise EOFError(NO_KEYBOARD) from None
            raise

    builtins.input = input


def _one_line(text: str) -> str:
    return " ".join(text.split())[:ERROR_CHARACTERS]


def _print(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text + "\n")
