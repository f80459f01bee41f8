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
    from collections.abc import Sequence

    from workbench.store.db.rows import JobRow

ORIGIN = "cli"

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once, without waiting.")]


@command("delete", "fabric delete digits --yes", "fabric delete abcdefghj bcdefghjk --yes --no-wait")
def delete(jobs: Jobs, yes: Yes = False, no_wait: NoWait = False) -> int:
    """Delete a job and everything that it left behind.

    Its processes are stopped. Its folder, with results and checkpoints, and its database rows are removed.
    """
    from workbench.services.control.requests import request, wait_until_deleted
    from workbench.services.control.select import JobSelector, select
    from workbench.services.open_store import store_with

    with store_with(jobs[0], steers=True) as (store, _):
        rows = select(store, JobSelector(tuple(jobs)))
        if not confirm(_question(rows), yes=yes):
            narrate("nothing was deleted")
            return 0
        request(store, rows, "delete", origin=ORIGIN)
        left = [] if no_wait else wait_until_deleted(store, rows)
    if left:
        narrate(f"still being removed: {', '.join(map(str, left))}")
    for row in rows:
        narrate(f"{short_id(row.id)} {row.name}: {'deletion requested' if no_wait else 'deleted'}")
    return 0


def _question(rows: Sequence[JobRow]) -> str:
    running = [row for row in rows if not is_over(row)]
    named = ", ".join(f"{short_id(row.id)} {row.name}" for row in rows[:5])
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    stops = f" {len(running)} of them will be stopped." if running else ""
    return f"Delete {named}{more} with results and checkpoints?{stops}"
