"""``fabric tui``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command

OneJob = Annotated[
    str,
    typer.Argument(
        metavar="[JOB]",
        help="Open this job's screen; with --web the address to serve at, such as 127.0.0.1:8000.",
        autocompletion=job_names,
    ),
]
ReadOnly = Annotated[bool, typer.Option("--readonly", help="Read-only: show everything, change nothing.")]
Web = Annotated[
    bool, typer.Option("--web", help="Serve the screens to a browser, at an address or at 127.0.0.1:8000.")
]


@command("tui", "fabric tui", "fabric tui @last", "fabric tui --readonly", "fabric tui --web 127.0.0.1:8000")
def tui(job: OneJob = "", readonly: ReadOnly = False, web: Web = False) -> int:
    """Open the terminal screens."""
    import os
    import sys

    from workbench.errors import UsageError
    from workbench.paths import Home, default_home
    from workbench.terminal.console import is_terminal

    home = Home(default_home())
    if web:
        from screens.app.web_server import serve

        return serve(home, job, readonly=readonly)
    served = "web_driver" in os.environ.get("TEXTUAL_DRIVER", "")
    if not served and (not is_terminal(sys.stdout) or sys.stdin is None or not is_terminal(sys.stdin)):
        raise UsageError("the screens need a terminal", hint="`fabric list` works without one")
    if job:
        from workbench.services.open_store import store_with

        with store_with(job) as (_, row):
            job = row.id
    from screens.app.app import run
    from workbench.cli.framework.run_options import read_run_options

    return run(home, read_run_options=read_run_options, job=job or None, readonly=readonly)
