"""Makes a lost or damaged database again of the job folders; the old one is kept beside it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.db.identity import make_home
from workbench.store.db.setup import one_at_a_time
from workbench.store.history.journal import catch_up
from workbench.store.queries.jobs import attempts
from workbench.store.queries.learners import learners
from workbench.store.updates.deletion import bury, purge_metrics
from workbench.store.updates.experiments import catch_up_experiment
from workbench.values import dataclass


@dataclass(slots=True)
class RebuildReport:
    """What was recovered. Filled in while it goes on."""

    jobs: int = 0
    """Jobs that had something to apply."""
    searches: int = 0
    """Searches that had something to apply."""
    events: int = 0
    tombstones: int = 0
    never_submitted: list[str] = field(default_factory=list)
    """Folders of jobs that were cut off before they were submitted; nothing ever ran of them."""
    problems: list[str] = field(default_factory=list)
    """Sentences on what could not be read."""
    kept: str = ""
    """Where the damaged database was put, empty when there was none."""


def reconcile(store: Store) -> RebuildReport:
    """Apply all that histories hold and rows do not.

    After a power failure, and to an empty database for a rebuild.

    Cheap when there is nothing to do: one look at the size of each history. Only for the holder of the
    controller lock.
    """
    report = RebuildReport()
    _bury_deleted(store, report)
    held = {
        job_id: (size, deleted_us)
        for job_id, size, deleted_us in store.rows("SELECT id, events_size, deleted_us FROM jobs")
    }
    _recover_experiments(store, report)
    for job_id in _folders(store.home):
        size, deleted_us = held.get(job_id, (0, None))
        if deleted_us is None:
            _recover(store, job_id, size, report)
    return report


def _recover_experiments(store: Store, report: RebuildReport) -> None:
    folder = store.home.experiments
    for experiment_id in sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else ():
        try:
            count = catch_up_experiment(store, experiment_id)
            report.events += count
            report.searches += 1 if count else 0
        except (FabricError, KeyError, TypeError, ValueError) as error:
            report.problems.append(f"{experiment_id}: {error}")


def _folders(home: Home) -> list[str]:
    try:
        return sorted(entry.name for entry in home.jobs.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def _recover(store: Store, job_id: str, size: int, report: RebuildReport) -> None:
    try:
        found = store.home.job(job_id).events.stat().st_size
    except FileNotFoundError:
        found = 0
    if not found:
        report.never_submitted.append(job_id)
        return
    if found <= size:
        return
    try:
        count = catch_up(store, job_id)
    except (FabricError, KeyError, TypeError, ValueError) as error:
        report.problems.append(f"{job_id}: {error}")
        return
    report.events += count
    report.jobs += 1 if count else 0


def _bury_deleted(store: Store, report: RebuildReport) -> None:
    try:
        lines = store.home.tombstones.read_bytes().splitlines()
    except FileNotFoundError:
        return
    known = {job_id for (job_id,) in store.rows("SELECT id FROM jobs WHERE deleted_us IS NOT NULL")}
    for line in lines:
        document = _document(line)
        if document is None or document["id"] in known:
            continue
        with store.atomic():
            bury(store, document)
        purge_metrics(store, document["id"])
        report.tombstones += 1


def _document(line: bytes) -> dict[str, Any] | None:
    """Return a tombstone, or None for a line that was torn by a crash."""
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) and "id" in document else None


TakeRecords = Callable[[Store, str, int, int, Path], bool]
"""``workbench.metrics.ingest``: this layer does not know it."""


def rebuild(home: Home, *, ingest: TakeRecords) -> RebuildReport:
    """Make the database again of the job folders and put it in place of the one that is there.

    Nothing on a backend is touched, and no learner is stopped or removed because of it. The caller makes sure
    that no controller runs. What is in no folder is lost: when backends last answered, and what the screens
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


def _read_records(store: Store, report: RebuildReport, ingest: TakeRecords) -> None:
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
        try:
            os.link(home.database, backup)
        except (
            OSError
        ):  # a file system without hard links: for a moment there is no database, which says how to go on
            home.database.rename(backup)
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
