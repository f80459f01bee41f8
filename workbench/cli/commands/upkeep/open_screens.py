"""Opens the terminal screens. Typer is not imported: of ``fabric tui`` it would take a tenth until the first paint."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.errors import UsageError
from workbench.paths import Home, default_home
from workbench.terminal.console import is_terminal

if TYPE_CHECKING:
    from workbench.services.submit.options import RunRequest


def open_screens(job: str = "", *, readonly: bool = False) -> int:
    """Show the screens until they are left; return the exit code.

    Args:
        job: The job to open, as a person names it; empty for where they were left.
        readonly: Whether nothing may be changed.

    Raises:
        UsageError: there is no terminal.
        FabricError: there is no such job, or the store cannot be read.
    """
    home = Home(default_home())
    served = "web_driver" in os.environ.get("TEXTUAL_DRIVER", "")
    if not served and (not is_terminal(sys.stdout) or sys.stdin is None or not is_terminal(sys.stdin)):
        raise UsageError("the screens need a terminal", hint="`fabric list` works without one")
    if job:
        from workbench.services.open_store import store_with

        with store_with(job) as (_, row):
            job = row.id
    from screens.app.app import run

    return run(home, read_run_options=_read_run_options, job=job or None, readonly=readonly)


def _read_run_options(words: Sequence[str]) -> RunRequest:
    """Read the arguments of ``fabric run`` as the command does, once a form asks for it."""
    from workbench.cli.framework.run_options import read_run_options

    return read_run_options(words)
