"""``fabric tui``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.commands.upkeep.open_screens import open_screens
from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command
from workbench.paths import Home, default_home

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
    if web:
        from screens.app.web_server import serve

        return serve(Home(default_home()), job, readonly=readonly)
    return open_screens(job, readonly=readonly)
