"""``fabric delete``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import JobsOrSearches, MatchingJobs, Yes
from workbench.job import short_id
from workbench.store.db.rows import is_running
from workbench.terminal.console import confirm, narrate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.services.control.select import Selection
    from workbench.store.db.database import Store
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
    jobs: JobsOrSearches = None, where: MatchingJobs = None, yes: Yes = False, no_wait: NoWait = False
) -> int:
    """Delete a job and everything that it left behind.

    Its processes are stopped. Its folder, with results and checkpoints, and its database rows are removed. A search
    is deleted with all its trials; one that is not over is ended first.
    """
    from workbench.services.control.select import JobSelector, select_all
    from workbench.services.open_store import store_of

    with store_of((jobs or [""])[0], steers=True) as store:
        selection = select_all(store, JobSelector(tuple(jobs or ()), where=tuple(where or ()), one=True))
        if not selection.found:
            narrate("no job matches")
            return 0
        if confirm(_question(store, selection), yes=yes):
            _delete(store, selection, says_what_runs=yes, no_wait=no_wait)
        else:
            narrate("nothing was deleted")
    return 0


def _delete(store: Store, selection: Selection, *, says_what_runs: bool, no_wait: bool) -> None:
    from workbench.services.control.requests import request, wait_until_deleted
    from workbench.services.control.searches import wait_until_gone
    from workbench.services.submit.experiments import delete_experiment
    from workbench.store.queries.experiments import short_experiment_id

    rows = selection.jobs
    if says_what_runs:
        _narrate_running(rows)
    request(store, rows, "delete", origin=ORIGIN)
    for search in selection.searches:
        delete_experiment(store, search)
    left = [] if no_wait else wait_until_deleted(store, rows, narrate)
    if not no_wait:
        left += [folder for each in selection.searches if (folder := wait_until_gone(store, each, narrate))]
    if left:
        narrate(f"still being removed: {', '.join(map(str, left))}")
    outcome = "deletion requested" if no_wait else "deleted"
    for row in rows:
        narrate(f"{short_id(row.id)} {row.name}: {outcome}")
    for search in selection.searches:
        narrate(f"{short_experiment_id(search.id)} {search.name}: {outcome}")


def _question(store: Store, selection: Selection) -> str:
    """Ask for the searches, and for the jobs that are named beside them."""
    from workbench.services.control.searches import deletion_question

    parts = [deletion_question(store, each) for each in selection.searches]
    if selection.jobs:
        parts.append(_job_question(selection.jobs))
    return " ".join(parts)


def _job_question(rows: Sequence[JobRow]) -> str:
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
