"""Asks the controller to stop or to delete jobs; a request is kept until the backend has confirmed it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from workbench.clock import elapsed_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

StopKind = Literal["halt", "kill"]
RequestKind = Literal["halt", "kill", "resume", "delete"]

_FOLDER_SECONDS: Final = 20.0
_FOLDER_POLL_SECONDS: Final = 0.02


def request(store: Store, jobs: Sequence[JobRow], kind: RequestKind, *, origin: str) -> tuple[int, ...]:
    """Write a request for each job, wake the controller, and return the requests' ids.

    Args:
        store: where the jobs are.
        jobs: the jobs, in the order in which they are to be treated.
        kind: what is asked for.
        origin: which client asks: ``cli``, ``python``, ``tui``.

    Raises:
        NoSpaceLeft: a request cannot be written; all the others were, or their jobs were told to stop all the same.
        UnknownName: a job no longer exists.
    """
    from workbench.controller.runtime.client import ask, ensure_controller
    from workbench.errors import NoSpaceLeft

    ids: list[int] = []
    failures: list[NoSpaceLeft] = []
    for row in jobs:
        try:
            ids.append(ask(store, row.id, kind, origin=origin))
        except NoSpaceLeft as error:
            failures.append(error)
    if ids:
        ensure_controller(store.home)
    if failures:
        raise NoSpaceLeft("\n".join(str(error) for error in failures), hint=failures[0].hint)
    return tuple(ids)


def request_stop(store: Store, jobs: Sequence[JobRow], kind: StopKind, *, origin: str) -> tuple[JobRow, ...]:
    """Ask for jobs to be halted or killed, the newest first; return those that have not ended already.

    The newest go first since a job that waits must not begin because one before it has ended.

    Raises:
        UnknownName: a job no longer exists.
    """
    from workbench.store.db.rows import is_over

    running = tuple(row for row in reversed(jobs) if not is_over(row))
    request(store, running, kind, origin=origin)
    return running


def stopped_first(jobs: Sequence[JobRow]) -> str:
    """Say which of the jobs a deletion stops before it removes them: a sentence, or nothing where none runs."""
    from workbench.store.db.rows import is_running

    running = sum(is_running(job) for job in jobs)
    if not running:
        return ""
    if len(jobs) == 1:
        return "It runs: it is stopped first."
    which = f"All {running:,}" if running == len(jobs) else f"{running:,} of them"
    return f"{which} run: they are stopped first." if running > 1 else f"{which} runs: it is stopped first."


def running_first(jobs: Sequence[JobRow]) -> list[JobRow]:
    """Return the jobs in their order, those that run before the others, so that a short list names these."""
    from workbench.store.db.rows import is_running

    return sorted(jobs, key=lambda job: not is_running(job))


def wait_until_deleted(store: Store, jobs: Sequence[JobRow]) -> list[Path]:
    """Wait until deletion is confirmed; return the folders that the controller still removes after a while.

    A job's folder is removed after its rows, which takes long where it holds much.
    """
    wait_until_forgotten(store, jobs)
    folders = [store.home.job(row.id).path for row in jobs]
    deadline = elapsed_seconds() + _FOLDER_SECONDS
    while left := [folder for folder in folders if folder.exists()]:
        if elapsed_seconds() > deadline:
            break
        time.sleep(_FOLDER_POLL_SECONDS)
    return left


def wait_until_forgotten(store: Store, jobs: Sequence[JobRow]) -> None:
    """Wait until the store knows that jobs are deleted; their folders are removed after that.

    Raises:
        NoSpaceLeft: the store cannot be written.
    """
    from workbench.services.follow.full_disk import UnrecordedEnd, check_every_second
    from workbench.services.follow.wait import wait_until

    check = check_every_second(UnrecordedEnd(store.home).check)
    wait_until(store, jobs, lambda rows: all(row.deleted_us is not None for row in rows), check=check)
