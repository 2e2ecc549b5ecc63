"""`ampwatch demo`: the dashboard on a training that is shipped with it."""

from __future__ import annotations

from typing import Any

import click

from ampwatch.cli.options import Options, training_options


@click.command(name="demo", context_settings={"ignore_unknown_options": True})
@click.option("--list", "list_demos", is_flag=True, help="Say what demos there are.")
@training_options
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[NAME] [OPTIONS OF THE DEMO]")
def command(list_demos: bool, args: tuple[str, ...], **asked: Any) -> int:
    """Watch a small training that is shipped with ampwatch.

    Without NAME it is the linear one. A demo runs at a pace that a person can follow under the
    dashboard, and flat out with --headless.
    """
    from ampwatch.cli.demo_files import DEFAULT, demo_names, read_demo
    from ampwatch.cli.demo_options import check_options

    if list_demos:
        demos = [read_demo(name) for name in demo_names()]
        width = max(len(demo.name) for demo in demos)
        for demo in demos:
            click.echo(f"{demo.name:{width}}  {demo.line}")
        return 0

    from ampwatch.cli.train import train
    from ampwatch.runner.settings import Settings

    options = Options(**asked)
    named = bool(args) and not args[0].startswith("-")
    demo = read_demo(args[0] if named else DEFAULT)
    own = list(args[named:])
    check_options(own, demo.options, command)
    # A demo is an ordinary script: its steps, seed and device are arguments it knows itself.
    for option in ("steps", "seed", "device"):
        value = getattr(options, option)
        if value is not None:
            own += [f"--{option}", str(value)]
    settings = Settings(
        name=demo.name,
        log=options.log,
        rate=options.pace(None if options.headless else demo.pace),
        dtype=options.dtype,
        scaler=options.scaler,
    )
    return train(str(demo.path), own, settings, options)
