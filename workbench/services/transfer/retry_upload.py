"""``fabric store retry``: results that could not be stored are stored after all, from wherever they are."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from workbench.errors import FabricError, InputMissing, PlaceUnreachable, UsageError
from workbench.formats import count, size
from workbench.job import TERMINAL, short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.services.result_store import ResultStore
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail

EXIT_NOT_STORED = 75
ORIGIN = "cli"


def retry(store: Store, job_id: str, *, json: bool) -> int:
    """Store a job's results again and say how it went; return the exit code, 75 where something is still missing.

    Raises:
        UsageError: the job runs, or has no result store.
        InputMissing: its results are neither at its place nor here.
    """
    from workbench.controller.loop.removal import correct_outcome
    from workbench.services.result_store import result_store
    from workbench.services.submit.secrets_refresh import renew_credentials
    from workbench.store.jobs import detail

    whole = detail(store, job_id)
    stored = result_store(whole.spec, job_id)
    if stored is None:
        raise UsageError(
            f"{short_id(job_id)} has no result store", hint=f"fabric download {short_id(job_id)}"
        )
    if whole.row.state not in TERMINAL:
        raise UsageError(
            f"{short_id(job_id)} is not over: its results are stored while it runs, and at its end"
        )
    renew_credentials(store.home, whole)
    summaries = _at_the_place(store, whole)
    if not summaries:
        summaries = [_from_here(store, whole, stored)]
    missing = sum(int(each.get("missing_files") or 0) for each in summaries)
    reasons = [str(each["reason"]["text"]) for each in summaries if each.get("reason")]
    files = max(int(each.get("files") or 0) for each in summaries)
    size_bytes = max(int(each.get("bytes") or 0) for each in summaries)
    state = whole.row.state if missing or reasons else correct_outcome(store, whole, ORIGIN)
    if json:
        from workbench.terminal.json_output import print_document

        told = {"where": stored.words, "files": files, "size_bytes": size_bytes, "missing_files": missing}
        told |= {"state": state.value}
        print_document({"schema": "fabric.stored/1", "id": job_id, **told, "reasons": reasons})
    elif missing or reasons:
        narrate(
            f"{count(missing, 'file')} of {short_id(job_id)} still not stored: {reasons[0] if reasons else ''}"
        )
        narrate("they stay where they are; try again once that is mended")
    else:
        narrate(f"{stored.words} has {count(files, 'file')} of {short_id(job_id)}, {size(size_bytes)}")
        if state is not whole.row.state:
            narrate(f"{short_id(job_id)} was {whole.row.state} for it and is {state} now")
    return EXIT_NOT_STORED if missing or reasons else 0


def _at_the_place(store: Store, whole: JobDetail) -> Sequence[Mapping[str, Any]]:
    """Ask the place; nothing where it has nothing, or is gone while this machine has the files."""
    from backends.contract.host import BackendOptions
    from runners.interface import AttemptRef, LaunchRequest
    from runners.registry import load_runner
    from workbench.controller.runtime.secrets import read_secrets
    from workbench.services.backends.placement import open_backend
    from workbench.store.db.database import home_uuid

    row, uuid = whole.row, home_uuid(store.home)
    request = LaunchRequest(
        attempt=AttemptRef(uuid, row.id, row.attempt, row.learners),
        spec=whole.spec,
        owner=row.owner,
        code_hash="",
        code_file="",
        recorded=whole.recorded,
        secrets=read_secrets(store.home, row.id),
    )
    place = row.place
    options = BackendOptions(place.backend, place.type, place.address, place.options)
    try:
        with closing(open_backend(options).open()) as opened:
            runner = load_runner(place.runner)(opened, home_uuid=uuid)
            with closing(runner):
                return runner.store_again(request)
    except PlaceUnreachable as error:
        if not any(_folders(store, row.id)):
            raise
        narrate(f"{error.message}; what this machine has of {short_id(row.id)} is stored from here")
        return []


def _folders(store: Store, job_id: str) -> list[bool]:
    job = store.home.job(job_id)
    return [folder.is_dir() and any(folder.iterdir()) for folder in (job.results, job.checkpoints)]


def _from_here(store: Store, whole: JobDetail, stored: ResultStore) -> Mapping[str, Any]:
    """Store what came home of a job."""
    from workbench.terminal.status_line import copy_line

    job = store.home.job(whole.row.id)
    if not any(_folders(store, whole.row.id)):
        raise InputMissing(
            f"nothing of {short_id(whole.row.id)} is left that could be stored, neither at its place nor here"
        )
    if stored.store.is_folder:
        raise UsageError(
            f"the results of {short_id(whole.row.id)} are in a folder of its place, not in a store"
        )
    moving = stored.moving(store.home)
    pairs = [(job.results, stored.results), (job.checkpoints, stored.checkpoints)]
    try:
        for source, path in pairs:
            if source.is_dir() and any(source.iterdir()):
                with copy_line(f"stores {source.name}") as tell:
                    moving.put(source, path, tell)
    except FabricError as error:
        return {"missing_files": 0, "reason": {"text": error.message}}
    files = moving.files(stored.results)
    return {"files": len(files), "bytes": sum(each.size_bytes for each in files), "missing_files": 0}
