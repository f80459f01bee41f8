"""``fabric halt``, ``kill`` and ``resume``: requests that are kept until the place confirms them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from workbench.cli.command import command
from workbench.cli.console import narrate, state_style
from workbench.cli.options import Backend, Job, Json, Labelled, SomeJobs
from workbench.cli.progress_words import is_over
from workbench.errors import UsageError
from workbench.job import nine

if TYPE_CHECKING:
    from workbench.store.database import Store
    from workbench.store.rows import JobRow

ORIGIN = "cli"

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return as soon as it is asked for.")]
Runner = Annotated[str, typer.Option("--runner", metavar="NAME", help="Another way to start it.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another value of params.NAME or env.NAME (repeatable)."),
]
Follow = Annotated[bool, typer.Option("--attach", "-a", help="Follow it, as `fabric attach` does.")]


@command("halt", "fabric halt @last", "fabric halt digits other --no-wait", "fabric halt --label sweep=lr")
def halt(jobs: SomeJobs = None, label: Labelled = "", no_wait: NoWait = False, json: Json = False) -> int:
    """Ask a job to checkpoint and stop; it can be resumed.

    Its processes get SIGTERM and, when the grace period is over, SIGKILL. Everything is kept. The command
    waits until the place confirms; what was asked for stands if it is interrupted.
    """
    return _stop("halt", jobs or [], label, wait=not no_wait, json=json)


@command("kill", "fabric kill @last", "fabric kill digits --no-wait", "fabric kill --label sweep=lr")
def kill(jobs: SomeJobs = None, label: Labelled = "", no_wait: NoWait = False, json: Json = False) -> int:
    """Stop a job at once; it can be resumed."""
    return _stop("kill", jobs or [], label, wait=not no_wait, json=json)


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
    runner: Runner = "",
    set: Changes = None,
    attach: Follow = False,
    no_wait: NoWait = False,
    json: Json = False,
) -> int:
    """Start a halted or failed job again from its checkpoints.

    It is the same job with the same folders for results and checkpoints, and one attempt more. A job that has
    a result store can go on at another place: what it stored is brought there. Its params and its env may be
    others from now on; code and all else stay.
    """
    from workbench.cli.documents import job_document, print_document
    from workbench.cli.interruption import policy_of
    from workbench.cli.open_store import store_with
    from workbench.cli.respecifying import respecified
    from workbench.store.jobs import detail
    from workbench.store.jobs import job as current

    with store_with(job) as (store, row):
        _check_resumable(row)
        _find_secrets(store, row)
        changes = respecified(detail(store, row.id), set) if set else {}
        request = _ask(store, row, "resume", {**_moved(store, row, backend, runner), **changes})
        if not no_wait and not attach:
            _wait_for_answer(store, row, request)
        row = current(store, row.id) or row
        if attach:
            from workbench.cli.attaching import attach_to

            _wait_for_answer(store, row, request)
            row = current(store, row.id) or row
            return attach_to(store, row, policy=policy_of(None), json=json)
        if json:
            print_document(job_document(row))
        else:
            narrate(f"{nine(row.id)} {row.name}: resumed; `fabric attach {nine(row.id)}` follows it")
    return 0


def _find_secrets(store: Store, row: JobRow) -> None:
    """Look anew for secrets that are not here.

    Raises:
        InputMissing: one is nowhere.
    """
    from workbench.cli.secrets_again import find_again
    from workbench.controller.secrets import refusal_of
    from workbench.store.reading import detail

    if missing := find_again(store.home, row.id, detail(store, row.id).spec):
        raise refusal_of(missing)


def _moved(store: Store, row: JobRow, backend: str, runner: str) -> dict[str, Any]:
    """Return what says where a job goes on, nothing where it stays.

    Raises:
        UsageError: what it has made so far is only where it ran.
    """
    from workbench.cli.places import find_place
    from workbench.store.reading import detail

    if not backend and not runner:
        return {}
    spec = detail(store, row.id).spec
    place, notes = find_place(backend or row.place.backend, runner, spec)
    there = (place.type, place.address) == (row.place.type, row.place.address)
    if not there and not any(each.training_results for each in spec.data_stores):
        raise UsageError(
            f"{nine(row.id)} has no result store: what it has made so far is only at '{row.place.backend}'",
            hint="`fabric resume` goes on there; give the next one training_results in its data_stores",
        )
    for note in notes:
        narrate(f"note: {note}")
    return {"place": asdict(place)}


def _check_resumable(row: JobRow) -> None:
    from workbench.job import State

    if row.state is State.COMPLETED:
        raise UsageError(
            f"{nine(row.id)} completed; there is nothing to resume",
            hint=f"`fabric rerun {nine(row.id)}` runs it again",
        )
    if not is_over(row):
        raise UsageError(
            f"{nine(row.id)} is {row.state.lower()}, not halted or failed",
            hint=f"`fabric attach {nine(row.id)}` follows it",
        )


def _stop(kind: Literal["halt", "kill"], names: list[str], label: str, *, wait: bool, json: bool) -> int:
    from workbench.cli.documents import job_document, print_document
    from workbench.cli.open_store import chosen_jobs, open_store
    from workbench.cli.wait import wait_until
    from workbench.store.jobs import job

    with open_store() as store:
        # Of many the newest first: what still waits must not begin because something before it ended.
        rows = chosen_jobs(store, names, label, only_open=True)[::-1]
        for row in rows:
            if is_over(row):
                narrate(f"{nine(row.id)} {row.name} has ended already: {row.state.lower()}")
            else:
                _ask(store, row, kind)
        if wait:
            rows, _ = wait_until(store, rows, lambda now: all(is_over(row) for row in now))
        rows = [job(store, row.id) or row for row in rows]
    if json:
        print_document([job_document(row) for row in rows])
    else:
        for row in rows:
            said = state_style(row.state) if is_over(row) else f"{kind} asked for"
            narrate(f"{nine(row.id)} {row.name}: {said}")
    return 0


def _ask(store: Store, row: JobRow, kind: str, payload: Mapping[str, Any] | None = None) -> int:
    from workbench.controller.client import ask, ensure_controller

    request = ask(store, row.id, kind, origin=ORIGIN, payload=payload)
    ensure_controller(store.home)
    return request


def _wait_for_answer(store: Store, row: JobRow, request: int) -> None:
    """Wait until the controller has taken or refused a request.

    Raises:
        TryAgain: it refused; the message says why.
    """
    from workbench.cli.wait import wait_until
    from workbench.errors import TryAgain
    from workbench.store.requests import request as current

    def answered(rows: list[JobRow]) -> bool:
        found = current(store, request)
        return found is None or bool(found.outcome)

    wait_until(store, [row], answered)
    found = current(store, request)
    if found is not None and found.outcome not in ("", "done"):
        raise TryAgain(f"{nine(row.id)}: {found.outcome}")
