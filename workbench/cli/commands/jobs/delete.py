"""``fabric delete``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Jobs, Yes
from workbench.job import short_id
from workbench.store.db.rows import is_over
from workbench.terminal.console import confirm, narrate

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.store.db.rows import JobRow

ORIGIN = "cli"
FOLDER_POLL_SECONDS = 0.02
FOLDER_SECONDS = 20.0

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return as soon as it is asked for.")]


@command("delete", "fabric delete digits --yes", "fabric delete abcdefghj bcdefghjk --yes --no-wait")
def delete(jobs: Jobs, yes: Yes = False, no_wait: NoWait = False) -> int:
    """Remove a job and everything that it left.

    Its processes are ended; its folder with results and checkpoints, and its rows, are removed.
    """
    from workbench.controller.runtime.client import ask, ensure_controller
    from workbench.services.follow.wait import wait_until
    from workbench.services.open_store import store_with
    from workbench.store.jobs import resolve

    with store_with(jobs[0]) as (store, first):
        rows = [first, *(resolve(store, name) for name in jobs[1:])]
        if not confirm(_question(rows), yes=yes):
            narrate("nothing was deleted")
            return 0
        for row in rows:
            ask(store, row.id, "delete", origin=ORIGIN)
        ensure_controller(store.home)
        if not no_wait:
            wait_until(store, rows, lambda now: all(row.deleted_us is not None for row in now))
            _wait_for_folders([store.home.job(row.id).path for row in rows])
    for row in rows:
        narrate(f"{short_id(row.id)} {row.name}: {'deletion asked for' if no_wait else 'deleted'}")
    return 0


def _wait_for_folders(folders: list[Path]) -> None:
    """Wait for the folders to go, which they do after the rows; what takes long is named and left to the controller."""
    import time

    from workbench.clock import elapsed_seconds

    deadline = elapsed_seconds() + FOLDER_SECONDS
    while left := [folder for folder in folders if folder.exists()]:
        if elapsed_seconds() > deadline:
            narrate(f"still being removed: {', '.join(map(str, left))}")
            return
        time.sleep(FOLDER_POLL_SECONDS)


def _question(rows: list[JobRow]) -> str:
    running = [row for row in rows if not is_over(row)]
    named = ", ".join(f"{short_id(row.id)} {row.name}" for row in rows[:5])
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    stops = f" {len(running)} of them will be stopped." if running else ""
    return f"Delete {named}{more} with results and checkpoints?{stops}"
