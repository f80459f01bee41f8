"""``fabric delete``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import MatchingJobs, SomeJobs, Yes
from workbench.job import short_id
from workbench.store.db.rows import is_running
from workbench.terminal.console import confirm, narrate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.store.db.rows import JobRow

ORIGIN = "cli"
NAMED = 5
"""So many jobs are named in the question."""

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once, without waiting.")]


@command(
    "delete",
    "fabric delete digits --yes",
    "fabric delete abcdefghj bcdefghjk --yes --no-wait",
    "fabric delete --where 'state:failed age>30d'",
)
def delete(
    jobs: SomeJobs = None, where: MatchingJobs = None, yes: Yes = False, no_wait: NoWait = False
) -> int:
    """Delete a job and everything that it left behind.

    Its processes are stopped. Its folder, with results and checkpoints, and its database rows are removed.
    """
    from workbench.services.control.requests import request, wait_until_deleted
    from workbench.services.control.select import JobSelector, select
    from workbench.services.open_store import store_of

    with store_of((jobs or [""])[0], steers=True) as store:
        rows = select(store, JobSelector(tuple(jobs or ()), where=tuple(where or ()), one=True))
        if not rows:
            narrate("no job matches")
            return 0
        if not confirm(_question(rows), yes=yes):
            narrate("nothing was deleted")
            return 0
        if yes:
            _narrate_running(rows)
        request(store, rows, "delete", origin=ORIGIN)
        left = [] if no_wait else wait_until_deleted(store, rows, narrate)
    if left:
        narrate(f"still being removed: {', '.join(map(str, left))}")
    for row in rows:
        narrate(f"{short_id(row.id)} {row.name}: {'deletion requested' if no_wait else 'deleted'}")
    return 0


def _question(rows: Sequence[JobRow]) -> str:
    from workbench.services.control.requests import running_first, stopped_first

    named = ", ".join(f"{short_id(row.id)} {row.name}" for row in running_first(rows)[:NAMED])
    more = f" and {len(rows) - NAMED:,} more" if len(rows) > NAMED else ""
    return " ".join(
        filter(None, (f"Delete {named}{more} with results and checkpoints?", stopped_first(rows)))
    )


def _narrate_running(rows: Sequence[JobRow]) -> None:
    """Say which jobs the deletion stops: with ``--yes`` no question names them."""
    for row in rows:
        if is_running(row):
            narrate(f"{short_id(row.id)} {row.name}: runs, and is stopped first")
