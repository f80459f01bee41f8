"""Removes deleted jobs: tombstone, secrets, then the folder, so that a crash leaves nothing that no row names."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any, Final

from workbench.controller.decide.errors import sentence
from workbench.controller.decide.messages import JobPurged, TidiedUp, TidyUpFailed
from workbench.controller.runtime.concurrency import THREADS, Concurrency
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.runtime.secrets import forget_secrets
from workbench.controller.targets.worker_pool import Post
from workbench.errors import CannotWrite
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.reserve import with_reserve
from workbench.store.queries.jobs import deleted_jobs, job
from workbench.store.updates.deletion import mark_deleted, purge_metrics

TRIES = 5
TRY_AGAIN_SECONDS = 0.2

NO_ROOM: Final = TidyUpFailed("there is not even the memory to say why")
"""What is posted where nothing new can be made."""


def purge(home: Home, job_id: str, who: str, post: Post, concurrency: Concurrency = THREADS) -> None:
    """Remove all of a deleted job but its tombstone, then post an event. Runs in a thread of its own."""
    try:
        with Store.open(home, makes=False) as store:
            try:
                with_reserve(home, lambda: mark_deleted(store, job_id, who=who, origin="controller"))
            except CannotWrite:
                row = job(store, job_id)
                if row is not None and row.deleted_us is not None:
                    _make_room(home.job(job_id).path, concurrency)
                raise
        forget_secrets(home, job_id)
        remove_folder(home.job(job_id).path, concurrency)
    except Exception as error:
        post(JobPurged(job_id, sentence(error)))
        return
    post(JobPurged(job_id))


def tidy_up(home: Home, log: ControllerLog, post: Post, concurrency: Concurrency = THREADS) -> None:
    """Repair what crashes left: histories ahead of rows, folders of deleted jobs. Runs in a thread of its own.

    One event is posted whatever happens, also without memory or descriptors: the loop waits for it to try again.
    """
    outcome: TidiedUp | TidyUpFailed = NO_ROOM
    repaired = False
    try:
        # Modules are files, too: without descriptors this fails.
        from workbench.store.updates.rebuild import reconcile

        with Store.open(home, makes=False) as store:
            report = reconcile(store)
            jobs = report.jobs + report.tombstones
            repaired = bool(jobs or report.searches)
            for problem in report.problems:
                log.say(problem)
            if jobs:
                log.say(f"repaired after a crash: {jobs} jobs")
            if removed := remove_leftovers(home, store, concurrency):
                log.say(f"removed after a crash: the folders of {removed} deleted jobs")
            for folder in (
                list(home.deleted_experiments.iterdir()) if home.deleted_experiments.is_dir() else ()
            ):
                remove_folder(folder, concurrency)
        outcome = TidiedUp(repaired)
    except Exception as error:
        outcome = TidyUpFailed(sentence(error), repaired)
    finally:
        post(outcome)


def remove_leftovers(home: Home, store: Store, concurrency: Concurrency = THREADS) -> int:
    """Remove the metrics and folders of jobs that have a tombstone; return how many there were.

    The folder goes last: as long as it is there, not all of its job may be gone.

    Raises:
        OSError: one of them cannot be removed; all others are.
        CannotWrite: the metrics of one cannot be removed now; all others are.
    """
    try:
        folders = {path.name for path in home.jobs.iterdir()}
    except OSError:
        return 0
    found = [row.id for row in deleted_jobs(store) if row.id in folders] if folders else []
    failure: OSError | CannotWrite | None = None
    for job_id in found:
        try:
            purge_metrics(store, job_id)
            forget_secrets(home, job_id)
            remove_folder(home.job(job_id).path, concurrency)
        except OSError as error:
            failure = failure or error
        except CannotWrite as error:
            failure = failure or error
            _make_room(home.job(job_id).path, concurrency)
    if failure is not None:
        raise failure
    return len(found)


def _make_room(folder: Path, concurrency: Concurrency) -> None:
    """Empty the folder of a deleted job: what else is left of it may need the room. The folder says that it is left."""
    with contextlib.suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                remove_folder(entry, concurrency)
            else:
                entry.unlink(missing_ok=True)


def remove_folder(folder: Path, concurrency: Concurrency = THREADS) -> None:
    """Remove a folder and all in it, read-only folders too.

    Raises:
        OSError: something in it cannot be removed.
    """

    def make_writable(function: Any, path: str, _: Any) -> None:
        parent = Path(path).parent
        for one in (parent, Path(path)):
            if one.is_dir() and not one.is_symlink():
                one.chmod(stat.S_IRWXU)
        if function in (os.open, os.scandir, os.listdir):
            shutil.rmtree(path)
        else:
            function(path)

    for left in reversed(range(TRIES)):
        try:
            if folder.exists():
                shutil.rmtree(folder, onerror=make_writable)
            return
        except OSError:
            # An agent that is about to end may have written one more file.
            if not left:
                raise
            concurrency.sleep(TRY_AGAIN_SECONDS)
