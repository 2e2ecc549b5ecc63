"""`ampwatch view`: the dashboard on a log."""

from __future__ import annotations

import os

import click


@click.command(name="view")
@click.argument("path", metavar="PATH")
@click.option("--follow", is_flag=True, help="Go on reading while the log grows.")
def command(path: str, follow: bool) -> int:
    """Show the dashboard on a recorded run.

    PATH is a log, or a folder with one log a rank, finished or still being written. Without
    --follow it is shown as it is now.
    """
    from ampwatch.cli.terminal import require_terminal
    from ampwatch.log import FollowedLog, WholeLog, check_log

    check_log(path, growing=follow)
    require_terminal("ampwatch diagnose says in text what is in a log")

    from ampwatch.controls import Controls
    from ampwatch.session import Session
    from ampwatch.tui.app import DashboardApp

    source = FollowedLog(path) if follow else WholeLog(path)
    controls = Controls()
    session = Session(source, controls)
    name = os.path.basename(os.path.abspath(path))
    app = DashboardApp(session, controls, None, name=name, follow=follow)
    app.run()
    return app.return_code or 0
