"""`ampwatch run`: the dashboard on a user's own training."""

from __future__ import annotations

import os
from typing import Any

import click

from ampwatch.cli.options import Options, training_options


@click.command(
    name="run",
    # Everything after SCRIPT is the script's own, whatever it looks like.
    context_settings={"allow_interspersed_args": False},
)
@training_options
@click.argument("script", metavar="SCRIPT|MODULE:FUNCTION")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(script: str, args: tuple[str, ...], **asked: Any) -> int:
    """Watch your own training script.

    SCRIPT runs as under plain python, with its own ARGS; it need not know ampwatch. A function of
    a module is run as MODULE:FUNCTION. Options for ampwatch come before SCRIPT.
    """
    from ampwatch.cli.target import check_target
    from ampwatch.cli.train import train
    from ampwatch.runner.settings import Settings

    options = Options(**asked)
    check_target(script)
    settings = Settings(
        name=os.path.basename(script),
        log=options.log,
        steps=options.steps,
        rate=options.pace(None),
        seed=options.seed,
        device=options.device,
        dtype=options.dtype,
        scaler=options.scaler,
    )
    return train(script, list(args), settings, options)
