"""``fabric wait``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.command import command
from workbench.cli.options import Jobs, Json

if TYPE_CHECKING:
    from workbench.store.database import Store
    from workbench.store.rows import JobRow

EXIT_TIMED_OUT = 124
POLL_SECONDS = 0.05

Any_ = Annotated[bool, typer.Option("--any", help="Until one of them has ended.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Give up after so long, with exit code 124."),
]


@command(
    "wait", "fabric wait @last", "fabric wait digits other --timeout 3600", "fabric wait --any a b --json"
)
def wait(jobs: Jobs, any_: Any_ = False, timeout: Timeout = None, json: Json = False) -> int:
    """Wait until jobs have ended.

    The exit code is the job's own; of several, that of the first named that did not end with 0.
    """
    from workbench.cli.attaching import exit_code_of
    from workbench.cli.open_store import open_store
    from workbench.cli.progress_words import is_over
    from workbench.store.jobs import resolve

    with open_store() as store:
        rows = [resolve(store, text) for text in jobs]
        enough = any if any_ else all
        rows, in_time = wait_until(
            store, rows, lambda now: enough(is_over(row) for row in now), timeout=timeout
        )
    ended = [row for row in rows if is_over(row)]
    if json:
        from workbench.cli.documents import job_document, print_document

        print_document([job_document(row) for row in rows])
    else:
        _tell(rows)
    if not in_time:
        return EXIT_TIMED_OUT
    return next((code for row in ended if (code := exit_code_of(row))), 0)


def wait_until(
    store: Store, rows: list[JobRow], done: Callable[[list[JobRow]], bool], *, timeout: float | None = None
) -> tuple[list[JobRow], bool]:
    """Wait until ``done`` says so of the jobs as they are then, with a controller kept running meanwhile.

    Returns the jobs as they are then (deleted ones with their tombstone), and whether it was in time.
    """
    import time

    from workbench.cli.following import Keeper
    from workbench.clock import elapsed_seconds
    from workbench.store.jobs import job

    deadline = None if timeout is None else elapsed_seconds() + timeout
    version = store.data_version()
    if done(rows):
        return rows, True
    with Keeper(store.home):
        while deadline is None or elapsed_seconds() < deadline:
            time.sleep(POLL_SECONDS)
            if (now := store.data_version()) == version:
                continue
            version = now
            rows = [job(store, row.id) or row for row in rows]
            if done(rows):
                return rows, True
    return rows, False


def _tell(rows: list[JobRow]) -> None:
    from workbench.cli.console import state_style
    from workbench.job import nine

    for row in rows:
        code = "" if row.exit_code is None else f"  exit code {row.exit_code}"
        reason = f"  {row.reason.text}" if row.reason.text else ""
        print(f"{nine(row.id)}  {row.name}  {state_style(row.state)}{code}{reason}")
