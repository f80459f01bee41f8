"""``fabric status``: one line a job, for who only wants to know how it goes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json, SomeJobs
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


@command("status", "fabric status", "fabric status @last", "fabric status digits other --json")
def status(jobs: SomeJobs = None, json: Json = False) -> None:
    """Show each job's state in one line.

    Without a name, all open jobs. `fabric list` and `fabric show` show more.
    """
    from workbench.services.open_store import existing_store, store_of
    from workbench.store.queries.jobs import open_jobs
    from workbench.store.queries.resolve import each_name, resolve

    if jobs:
        with store_of(jobs[0]) as store:
            rows = [resolve(store, name) for name in each_name(store, jobs)]
            _print(store, rows, json=json)
        return
    with existing_store() as store_or_none:
        rows = open_jobs(store_or_none) if store_or_none else []
        _print(store_or_none, rows, json=json)
    if not rows and not json:
        narrate("no job is open; `fabric list` shows those that have ended")


def _print(store: Store | None, rows: list[JobRow], *, json: bool) -> None:
    if json:
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

        print_document([job_document(row) for row in rows])
        return
    from workbench.metrics import series
    from workbench.services.follow.full_disk import store_trouble
    from workbench.services.follow.job_text import ended_lines, metrics_line, state_line
    from workbench.store.db.rows import is_over
    from workbench.terminal.errors import warn

    if store and (trouble := store_trouble(store.home, rows)):
        warn(trouble)
    for row in rows:
        line = ended_lines(row, "")[0] if is_over(row) else state_line(row)
        values = metrics_line(series(store, row.id)) if store else ""
        sys.stdout.write(f"{line}  {values}".rstrip() + "\n")
