"""``fabric tui``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.command import command
from workbench.cli.completions import job_names

OneJob = Annotated[
    str, typer.Argument(metavar="[JOB]", help="Open this job's screen.", autocompletion=job_names)
]


@command("tui", "fabric tui", "fabric tui @last")
def tui(job: OneJob = "") -> int:
    """Open the terminal screens."""
    import sys

    from workbench.cli.console import is_terminal
    from workbench.errors import UsageError
    from workbench.paths import Home, default_home

    if not is_terminal(sys.stdout) or sys.stdin is None or not is_terminal(sys.stdin):
        raise UsageError("the screens need a terminal", hint="`fabric list` works without one")
    if job:
        from workbench.cli.open_store import store_with

        with store_with(job) as (_, row):
            job = row.id
    from screens.app import run

    return run(Home(default_home()), job=job or None)
