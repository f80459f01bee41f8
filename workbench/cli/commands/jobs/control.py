"""``fabric halt``, ``kill`` and ``resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import changeable_keys
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import (
    Backend,
    Job,
    Json,
    Labelled,
    MatchingJobs,
    OpenJobs,
    RunnerName,
)
from workbench.job import short_id
from workbench.store.db.rows import is_over
from workbench.terminal.console import narrate, state_style

if TYPE_CHECKING:
    from workbench.services.control.requests import StopKind
    from workbench.services.control.select import JobSelector

ORIGIN = "cli"

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once, without waiting.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a new value of params.NAME or env.NAME (repeatable).",
        autocompletion=changeable_keys,
    ),
]
Follow = Annotated[bool, typer.Option("--attach", "-a", help="Follow it, as `fabric attach` does.")]


@command(
    "halt",
    "fabric halt @last",
    "fabric halt digits other --no-wait",
    "fabric halt --label sweep=lr",
    "fabric halt --where 'params.lr>0.1'",
)
def halt(
    jobs: OpenJobs = None,
    label: Labelled = "",
    where: MatchingJobs = None,
    no_wait: NoWait = False,
    json: Json = False,
) -> int:
    """Ask a job to checkpoint and stop; it can be resumed.

    Its processes get SIGTERM and, after the grace period, SIGKILL. All files are kept. The command waits
    until the backend confirms; if it is interrupted, or the backend does not answer (exit code 69), the
    request still stands.
    """
    return _stop("halt", _selector(jobs, label, where), wait=not no_wait, json=json)


@command(
    "kill",
    "fabric kill @last",
    "fabric kill digits --no-wait",
    "fabric kill --label sweep=lr",
    "fabric kill --where 'name:digits'",
)
def kill(
    jobs: OpenJobs = None,
    label: Labelled = "",
    where: MatchingJobs = None,
    no_wait: NoWait = False,
    json: Json = False,
) -> int:
    """Stop a job at once; it can be resumed."""
    return _stop("kill", _selector(jobs, label, where), wait=not no_wait, json=json)


@command(
    "resume",
    "fabric resume @last",
    "fabric resume digits --attach",
    "fabric resume digits -b gpubox",
    "fabric resume digits --set params.epochs=20",
)
def resume(
    job: Job,
    backend: Backend = "",
    runner: RunnerName = "",
    set: Changes = None,
    attach: Follow = False,
    no_wait: NoWait = False,
    json: Json = False,
) -> int:
    """Start a halted or failed job again from its checkpoints.

    It is the same job with the same folders for results and checkpoints, and one more attempt. It can continue
    on another backend: what it stored in its result store, or what came home from where it ran, is copied there
    first. params and env can be changed with --set; code and everything else stay the same.
    """
    from workbench.cli.follow.signals import policy_of
    from workbench.services.inspect.job_document import job_document
    from workbench.services.open_store import store_with
    from workbench.services.submit.resume import JobChanges, wait_for_answer
    from workbench.services.submit.resume import resume as request_resume
    from workbench.store.queries.jobs import job as current
    from workbench.terminal.json_output import print_document

    with store_with(job, steers=True) as (store, row):
        changes = JobChanges(backend, runner, tuple(set or ()))
        request = request_resume(store, row, changes, origin=ORIGIN)
        for note in request.notes:
            narrate(f"note: {note}")
        if not no_wait or attach:
            wait_for_answer(store, row, request)
        row = current(store, row.id) or row
        if attach:
            from workbench.cli.follow.attach import attach_to
            from workbench.cli.follow.options import FollowOptions

            return attach_to(store, row, FollowOptions(on_interrupt=policy_of(None), json=json))
        if json:
            print_document(job_document(row))
        else:
            narrate(f"{short_id(row.id)} {row.name}: resumed; `fabric attach {short_id(row.id)}` follows it")
    return 0


def _selector(jobs: list[str] | None, label: str, where: list[str] | None) -> JobSelector:
    from workbench.services.control.select import JobSelector

    return JobSelector(tuple(jobs or ()), label, tuple(where or ()), only_open=True)


def _stop(kind: StopKind, selector: JobSelector, *, wait: bool, json: bool) -> int:
    from workbench.services.control.requests import request_stop, wait_until_stopped
    from workbench.services.control.select import select
    from workbench.services.inspect.job_document import job_document
    from workbench.services.open_store import open_store
    from workbench.store.queries.jobs import job
    from workbench.terminal.errors import warn
    from workbench.terminal.json_output import print_document

    with open_store(steers=True) as store:
        chosen = select(store, selector)
        if not chosen:
            narrate("no open job matches")
        asked = request_stop(store, chosen, kind, origin=ORIGIN)
        rows = list(reversed(chosen))
        for row in rows:
            if row not in asked:
                narrate(f"{short_id(row.id)} {row.name} has already ended: {row.state.lower()}")
        if wait:
            wait_until_stopped(store, rows, kind, warn=warn, report=narrate)
        rows = [job(store, row.id) or row for row in rows]
    if json:
        print_document([job_document(row) for row in rows])
    else:
        for row in rows:
            outcome = state_style(row.state) if is_over(row) else f"{kind} requested"
            narrate(f"{short_id(row.id)} {row.name}: {outcome}")
    return 0
