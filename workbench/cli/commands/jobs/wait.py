"""``fabric wait``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.follow_options import Junit, Notify, Require, Summary
from workbench.cli.framework.options import JobsOrSearches, Json, Labelled
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.cli.follow.options import FollowOptions
    from workbench.services.control.select import Selection
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow

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
    "fabric wait 'digits[1..2]'",
    "fabric wait --label sweep=lr --require 'accuracy>=0.9' --junit fabric.xml",
    "fabric wait --any a b --json",
)
def wait(
    jobs: JobsOrSearches = None,
    label: Labelled = "",
    any_: Any_ = False,
    timeout: Timeout = None,
    require: Require = None,
    junit: Junit = "",
    summary: Summary = "",
    notify: Notify = False,
    json: Json = False,
) -> int:
    """Wait until jobs, or searches with all their trials, have ended.

    The exit code is the job's own; with several jobs, that of the first named job that failed. That of a search is 0
    if it completed, 1 if it failed and 137 if it was killed; --require holds against its best trial. A job of an array
    that is not made yet is waited for as well, unless the array ends before.
    """
    from workbench.cli.follow.options import FollowOptions
    from workbench.job import EXIT_TIMED_OUT
    from workbench.services.control.searches import wait_until_over
    from workbench.services.control.select import JobSelector, Selection, select_awaited
    from workbench.services.durations import seconds_of
    from workbench.services.filters import read_conditions
    from workbench.services.inspect.job_report import ReportFiles
    from workbench.services.open_store import open_store
    from workbench.store.queries.members import UnmadeJob, made_job
    from workbench.terminal.errors import warn

    options = FollowOptions(require=read_conditions(require or []), report_files=ReportFiles(junit, summary))
    options.report_files.check()
    seconds = None if timeout is None else seconds_of(timeout, "--timeout")
    with open_store() as store:
        awaited = select_awaited(store, JobSelector(tuple(jobs or ()), label))
        unmade = [each for each in awaited if isinstance(each, UnmadeJob)]
        selection = Selection(tuple(each for each in awaited if not isinstance(each, UnmadeJob)))
        rows, searches, in_time = wait_until_over(
            store,
            selection.jobs,
            selection.searches,
            unmade=unmade,
            any_one=any_,
            timeout_seconds=seconds,
            warn=warn,
        )
        now: dict[str, JobRow | ExperimentRow] = {each.id: each for each in rows}
        now |= {each.id: each for each in searches}
        made = ((each.id, made_job(store, each.search, each.number)) for each in unmade)
        now |= {name: row for name, row in made if row is not None}
        selection = Selection(tuple(now[each.id] for each in awaited if each.id in now))
        if json:
            from workbench.cli.follow.report import documents_of
            from workbench.terminal.json_output import print_document

            print_document(documents_of(store, selection.found))
        else:
            from workbench.cli.follow.report import print_ends

            print_ends(store, selection.found)
        for each in unmade:
            if each.id not in now:
                narrate(f"{each.id} is not made yet: `fabric show '{each.id}'` says why")
        if notify:
            from workbench.cli.follow.notifications import notify as call

            call("fabric", ", ".join(f"{row.name} {row.state.lower()}" for row in selection.found))
        code = _finish(store, selection, options)
    return code if in_time else EXIT_TIMED_OUT


def _finish(store: Store, selection: Selection, options: FollowOptions) -> int:
    """Check and write what is asked for of those that have ended, and return the exit code."""
    from workbench.cli.follow.attach import exit_code_of
    from workbench.cli.follow.report import EndedSearch, ended_search, finish
    from workbench.services.control.searches import exit_code_of_search
    from workbench.store.db.rows import JobRow, is_over

    ended: list[tuple[JobRow | EndedSearch, int]] = []
    for each in selection.found:
        if isinstance(each, JobRow):
            ended += [(each, exit_code_of(each))] if is_over(each) else []
        elif not each.is_open:
            ended.append((ended_search(store, each, options), exit_code_of_search(each)))
    if not options.needs_the_end:
        return next((code for _, code in ended if code), 0)
    return finish(store, ended, options)
