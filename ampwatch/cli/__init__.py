"""The command line: one command a file, loaded when it is asked for.

`ampwatch --help` answers without torch, Textual or numpy.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from ampwatch import __version__
from ampwatch.errors import AmpwatchError, UsageError

COMMANDS = ("demo", "learn", "run", "view", "diagnose", "rules", "check", "compare")


class Commands(click.Group):
    """Finds a command in the module of its name; says what went wrong in one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"ampwatch.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else "see ampwatch --help"
            if name.endswith(".py"):
                hint = f"did you mean 'ampwatch run {name}'?"
            raise UsageError(f"there is no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except AmpwatchError as error:
            _complain(str(error))
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _complain(error.format_message())
            sys.exit(2)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(130)
        sys.exit(code if isinstance(code, int) else 0)


def _complain(sentence: str) -> None:
    click.echo(f"ampwatch: {sentence}", err=True)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="ampwatch %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Watch the numerical health of PyTorch mixed-precision training in the terminal.

    Start with: ampwatch demo
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
