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
    raise NotImplementedError
