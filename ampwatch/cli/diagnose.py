"""`ampwatch diagnose`: what is wrong in a recorded run, where and why."""

from __future__ import annotations

import json
import shutil
import sys

import click

from ampwatch.cli.fail_on import fail_code, fail_on_option

FEWEST_COLUMNS, MOST_COLUMNS = 40, 100


@click.command(name="diagnose")
@click.argument("path", metavar="PATH")
@click.option("--json", "json_output", is_flag=True, help="The same as one JSON object.")
@fail_on_option
def command(path: str, json_output: bool, fail_on: tuple[str, ...] | None) -> int:
    """Say what is wrong in a recorded run, and what to do about it.

    PATH is a log, or a folder with one log a rank. Findings are told worst first, with their
    steps and the numbers they rest on; a healthy run is said to be healthy. Exit code 3 when a
    rule of --fail-on was found.
    """
    from ampwatch.headless.report import report_json, report_text
    from ampwatch.log import WholeLog, check_log
    from ampwatch.record import strict
    from ampwatch.session import Session

    check_log(path)
    session = Session(WholeLog(path))
    while change := session.pump():
        for notice in change.notices:
            click.echo(f"ampwatch: {notice.text}", err=True)
    if json_output:
        click.echo(json.dumps(strict(report_json(session)), allow_nan=False))
    else:
        click.echo(report_text(session, _columns()))
    return fail_code(session.findings, fail_on)


def _columns() -> int:
    """The width of the terminal, within what reads well."""
    if not sys.stdout.isatty():
        return MOST_COLUMNS
    return max(FEWEST_COLUMNS, min(shutil.get_terminal_size().columns, MOST_COLUMNS))
