"""``fabric wait``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.follow_options import Junit, Notify, Require, Summary
from workbench.cli.framework.options import Json, Labelled, SomeJobs
from workbench.terminal.console import state_style

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow

Any_ = Annotated[bool, typer.Option("--any", help="Wait only until one of them has ended.")]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="TIME", help="Give up after this time, e.g. 90s or 2h, with exit code 124."
    ),
]


@command(
    "wait",
    "fabric wait @last",
    "fabric wait digits other --timeout 1h --notify",
    "fabric wait --label sweep=lr --require 'accuracy>=0.9' --junit fabric.xml",
    "fabric wait --any a b --json",
)
def wait(
    jobs: SomeJobs = None,
    label: Labelled = "",
    any_: Any_ = False,
    timeout: Timeout = None,
    require: Require = None,
    junit: Junit = "",
    summary: Summary = "",
    notify: Notify = False,
    json: Json = False,
) -> int:
    """Wait until jobs have ended.

    The exit code is the job's own; with several jobs, that of the first named job that failed.
    """
    from workbench.cli.follow.attach import exit_code_of
    from workbench.cli.follow.options import FollowOptions
    from workbench.cli.follow.report import finish
    from workbench.job import EXIT_TIMED_OUT
    from workbench.services.control.select import JobSelector, select
    from workbench.services.durations import seconds_of
    from workbench.services.filters import read_conditions
    from workbench.services.follow.full_disk import TroubleReport, check_every_second
    from workbench.services.follow.wait import wait_until
    from workbench.services.inspect.job_report import ReportFiles
    from workbench.services.open_store import open_store
    from workbench.store.db.rows import is_over
    from workbench.terminal.errors import warn

    options = FollowOptions(require=read_conditions(require or []), report_files=ReportFiles(junit, summary))
    options.report_files.check()
    seconds = None if timeout is None else seconds_of(timeout, "--timeout")
    with open_store() as store:
        rows = list(select(store, JobSelector(tuple(jobs or ()), label)))
        enough = any if any_ else all
        rows, in_time = wait_until(
            store,
            rows,
            lambda now: enough(is_over(row) for row in now),
            timeout_seconds=seconds,
            check=check_every_second(TroubleReport(store.home, warn).check),
        )
        ended = [row for row in rows if is_over(row)]
        if json:
            from workbench.services.inspect.job_document import job_document
            from workbench.terminal.json_output import print_document

            print_document([job_document(row) for row in rows])
        else:
            _print_rows(rows)
        if notify:
            from workbench.cli.follow.notifications import notify as call

            call("fabric", ", ".join(f"{row.name} {row.state.lower()}" for row in rows))
        codes = [(row, exit_code_of(row)) for row in ended]
        first_failure = next((code for _, code in codes if code), 0)
        code = finish(store, codes, options) if options.needs_the_end else first_failure
    return code if in_time else EXIT_TIMED_OUT


def _print_rows(rows: list[JobRow]) -> None:
    from workbench.job import short_id

    for row in rows:
        code = "" if row.exit_code is None else f"  exit code {row.exit_code}"
        reason = f"  {row.reason.text}" if row.reason.text else ""
        print(f"{short_id(row.id)}  {row.name}  {state_style(row.state)}{code}{reason}")
