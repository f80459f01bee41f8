"""Makes a lost or damaged database again of the job folders; the old one is kept beside it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.db.identity import make_home
from workbench.store.db.setup import one_at_a_time
from workbench.store.jobs import attempts
from workbench.store.queries.learners import learners
from workbench.store.updates.x_recovering import Report, reconcile

TakeRecords = Callable[[Store, str, int, int, Path], bool]
"""``workbench.metrics.ingest``: this layer does not know it."""


def rebuild(home: Home, *, ingest: TakeRecords) -> Report:
    """Make the database again of the job folders and put it in place of the one that is there.

    Nothing of a place is touched, and no learner is stopped or removed because of it. The caller makes sure
    that no controller runs. What is in no folder is lost: when places last answered, and what the screens
    remember.

    Args:
        home: The home.
        ingest: ``workbench.metrics.ingest``, which reads the records of each learner.

    Raises:
        CannotWrite: the home takes no more; the old database stays as it is.
    """
    _recover_identity(home)
    make_home(home)
    fresh = home.path / "fabric.db.rebuilding"
    try:
        with _leaving_nothing(fresh):
            with Store.open_file(home, fresh) as store:
                report = reconcile(store)
                _read_records(store, report, ingest)
                store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with one_at_a_time(home):
                report.kept = _swap(home, fresh)
    except OSError as error:
        raise write_failure(error, home.path) from error
    return report


def _read_records(store: Store, report: Report, ingest: TakeRecords) -> None:
    for (job_id,) in store.rows("SELECT id FROM jobs WHERE deleted_us IS NULL ORDER BY seq"):
        for number, learner in _journals(store, job_id):
            records = store.home.job(job_id).attempt(number).learner(learner).records
            try:
                while ingest(store, job_id, number, learner, records):
                    pass
            except FabricError as error:
                report.problems.append(f"{job_id}: {error}")


def _journals(store: Store, job_id: str) -> list[tuple[int, int]]:
    """Name the attempts and learners whose records there may be, also of learners that no event tells of."""
    known = {(row.attempt, row.learner) for row in learners(store, job_id)}
    for row in attempts(store, job_id):
        folder = store.home.job(job_id).attempt(row.attempt).path
        for entry in folder.glob("learner-*"):
            if (number := entry.name.removeprefix("learner-")).isdigit():
                known.add((row.attempt, int(number)))
    return sorted(known)


def _swap(home: Home, fresh: Path) -> str:
    """Keep the old database under another name, then put the new one in its place in one step."""
    kept = ""
    if home.database.exists():
        backup = home.path / f"fabric.db.before-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        os.link(home.database, backup)
        kept = str(backup)
        for suffix in ("-wal", "-shm"):
            # Left where it is, SQLite would apply the old database's log to the new one.
            with contextlib.suppress(FileNotFoundError):
                home.database.with_name(home.database.name + suffix).rename(
                    backup.with_name(backup.name + suffix)
                )
    fresh.rename(home.database)
    return kept


@contextmanager
def _leaving_nothing(fresh: Path) -> Iterator[None]:
    def clear() -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)

    clear()
    try:
        yield
    finally:
        clear()


def _recover_identity(home: Home) -> None:
    """Take the home's uuid from a learner that it started, where ``home.json`` is lost.

    Running learners carry it.
    """
    if home.identity.exists():
        return
    for launch in sorted(home.jobs.glob("*/attempt-*/learner-*/launch.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            make_home(home, uuid_text=json.loads(launch.read_bytes())["home"])
            return
