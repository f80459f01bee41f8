"""``fabric halt``, ``kill`` and ``resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.completion import changeable_keys
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import (
    Backends,
    JobOrSearch,
    Json,
    Labelled,
    MatchingJobs,
    OpenJobsOrSearches,
    RunnerName,
)
from workbench.job import short_id
from workbench.store.db.rows import JobRow, is_over
from workbench.terminal.console import narrate, state_style

if TYPE_CHECKING:
    from workbench.documents.experiments import ExperimentDocument
    from workbench.documents.jobs import JobDocument
    from workbench.services.control.requests import StopKind
    from workbench.services.control.select import JobSelector
    from workbench.store.db.database import Store
    from workbench.store.queries.experiments import ExperimentRow

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
    jobs: OpenJobsOrSearches = None,
    label: Labelled = "",
    where: MatchingJobs = None,
    no_wait: NoWait = False,
    json: Json = False,
) -> int:
    """Ask a job to checkpoint and stop; it can be resumed.

    Its processes get SIGTERM and, after the grace period, SIGKILL. All files are kept. The command waits
    until the backend confirms; if it is interrupted, or the backend does not answer (exit code 69), the
    request still stands. A search is paused: its trials are halted, and no others begin.
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
    jobs: OpenJobsOrSearches = None,
    label: Labelled = "",
    where: MatchingJobs = None,
    no_wait: NoWait = False,
    json: Json = False,
) -> int:
    """Stop a job at once; it can be resumed.

    A search ends with all its trials, as by `fabric experiment kill`.
    """
    return _stop("kill", _selector(jobs, label, where), wait=not no_wait, json=json)


@command(
    "resume",
    "fabric resume @last",
    "fabric resume digits --attach",
    "fabric resume digits -b gpubox",
    "fabric resume digits --set params.epochs=20",
)
def resume(
    job: JobOrSearch,
    backend: Backends = "",
    runner: RunnerName = "",
    set: Changes = None,
    attach: Follow = False,
    no_wait: NoWait = False,
    json: Json = False,
) -> int:
    """Start a halted or failed job again from its checkpoints.

    It is the same job with the same folders for results and checkpoints, and one more attempt. It can continue
    on another backend: what it stored in its result store, or what came home from where it ran, is copied there
    first. params and env can be changed with --set; code and everything else stay the same. A search that was halted
    goes on with its trials.
    """
    from workbench.cli.follow.signals import policy_of
    from workbench.services.inspect.job_document import job_document
    from workbench.services.open_store import store_with_any
    from workbench.services.submit.resume import JobChanges, wait_for_answer
    from workbench.services.submit.resume import resume as request_resume
    from workbench.store.queries.jobs import job as current
    from workbench.terminal.json_output import print_document

    with store_with_any(job, steers=True) as (store, row):
        if not isinstance(row, JobRow):
            _resume_search(store, row, has_options=bool(backend or runner or set or attach), json=json)
            return 0
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


def _resume_search(store: Store, row: ExperimentRow, *, has_options: bool, json: bool) -> None:
    from workbench.errors import UsageError
    from workbench.services.submit.experiments import experiment_document, resume_experiment
    from workbench.store.queries.experiments import deleted_experiments, resolve_experiment
    from workbench.terminal.json_output import print_document

    short = _short(row)
    if row.id in deleted_experiments(store):
        raise UsageError(
            f"{row.name} is a search that is being deleted",
            hint="`fabric experiment list` shows those there are; `fabric run MANIFEST` begins one",
        )
    if has_options:
        raise UsageError(
            f"{row.name} is a search: it goes on as it is, without further options",
            hint=f"`fabric resume {short}`, or `fabric resume` of one of its jobs, which"
            f" `fabric experiment trials {short}` lists",
        )
    if not row.is_open:
        raise UsageError(
            f"{row.name} is a search that is over: {row.state}",
            hint=f"`fabric experiment continue {short}` takes it up; `fabric experiment fork {short}` begins"
            " another one like it",
        )
    is_changed = resume_experiment(store, row)
    row = resolve_experiment(store, row.id)
    if json:
        print_document(experiment_document(store, row))
    else:
        narrate(f"{short} {row.name}: {'goes on' if is_changed else state_style(row.state)}")


def _selector(jobs: list[str] | None, label: str, where: list[str] | None) -> JobSelector:
    from workbench.services.control.select import JobSelector

    return JobSelector(tuple(jobs or ()), label, tuple(where or ()), only_open=True)


def _stop(kind: StopKind, selector: JobSelector, *, wait: bool, json: bool) -> int:
    from workbench.services.control.requests import request_stop, wait_until_stopped
    from workbench.services.control.select import select_all
    from workbench.services.inspect.job_document import job_document
    from workbench.services.open_store import open_store
    from workbench.services.submit.experiments import experiment_document
    from workbench.store.queries.jobs import job
    from workbench.terminal.errors import warn
    from workbench.terminal.json_output import print_document

    with open_store(steers=True) as store:
        selection = select_all(store, selector)
        if not selection.found:
            narrate("no open job matches")
        # Searches first: they would begin other trials where one of theirs is named beside them.
        changed = [each for each in selection.searches if _stop_search(store, each, kind)]
        asked = request_stop(store, selection.jobs, kind, origin=ORIGIN)
        rows = list(reversed(selection.jobs))
        for row in rows:
            if row not in asked:
                narrate(f"{short_id(row.id)} {row.name} has already ended: {row.state.lower()}")
        if wait:
            wait_until_stopped(store, rows, kind, warn=warn, report=narrate)
        rows = [job(store, row.id) or row for row in rows]
        searches = [_stopped_search(store, each, kind, wait=wait) for each in changed]
        searches += [each for each in selection.searches if each not in changed]
        documents: list[JobDocument | ExperimentDocument] = [
            *map(job_document, rows),
            *(experiment_document(store, each) for each in (searches if json else ())),
        ]
    if json:
        print_document(documents)
        return 0
    for row in rows:
        outcome = state_style(row.state) if is_over(row) else f"{kind} requested"
        narrate(f"{short_id(row.id)} {row.name}: {outcome}")
    for each in searches[: len(changed)]:
        is_stopped = wait and each.state != "STOPPING"
        outcome = state_style(each.state) if is_stopped else f"{kind} requested"
        narrate(f"{_short(each)} {each.name}: {outcome}")
    return 0


def _short(row: ExperimentRow) -> str:
    from workbench.store.queries.experiments import short_experiment_id

    return short_experiment_id(row.id)


def _stop_search(store: Store, row: ExperimentRow, kind: StopKind) -> bool:
    """End or pause a search; return whether it is, or was before, on its way there."""
    from workbench.services.submit.experiments import kill_experiment, pause_experiment
    from workbench.store.queries.experiments import deleted_experiments

    change = kill_experiment if kind == "kill" else pause_experiment
    if change(store, row) or (kind == "halt" and row.state == "PAUSED"):
        return True
    how = "is" if row.is_open else "has already ended:"
    why = f": {row.reason}" if row.is_open and row.reason else ""
    standing = f"{how} {row.state.lower()}{why}"
    if row.id in deleted_experiments(store):
        standing = "is already being deleted"
    narrate(f"{_short(row)} {row.name} {standing}")
    return False


def _stopped_search(store: Store, row: ExperimentRow, kind: StopKind, *, wait: bool) -> ExperimentRow:
    from workbench.services.control.searches import search_now, wait_until_ended, wait_until_halted
    from workbench.terminal.errors import warn

    if not wait:
        return search_now(store, row)
    until = wait_until_ended if kind == "kill" else wait_until_halted
    return until(store, row, warn=warn, report=narrate)
