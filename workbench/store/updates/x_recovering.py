"""After a crash: what the job folders know and the rows do not is brought into the rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.history.journal import catch_up
from workbench.store.updates.deletion import bury, purge_metrics


@dataclass(slots=True)
class Report:
    """What was recovered. Filled in while it goes on."""

    jobs: int = 0
    """Jobs that had something to apply."""
    events: int = 0
    tombstones: int = 0
    never_submitted: list[str] = field(default_factory=list)
    """Folders of jobs that were cut off before they were submitted; nothing ever ran of them."""
    problems: list[str] = field(default_factory=list)
    """Sentences on what could not be read."""
    kept: str = ""
    """Where the damaged database was put, empty when there was none."""


def reconcile(store: Store) -> Report:
    """Apply all that histories hold and rows do not.

    After a power failure, and to an empty database for a rebuild.

    Cheap when there is nothing to do: one look at the size of each history. Only for the holder of the
    controller lock.
    """
    report = Report()
    _bury_deleted(store, report)
    held = {
        job_id: (size, gone)
        for job_id, size, gone in store.rows("SELECT id, events_size, deleted_us FROM jobs")
    }
    for job_id in _folders(store.home):
        size, gone = held.get(job_id, (0, None))
        if gone is None:
            _recover(store, job_id, size, report)
    return report


def _folders(home: Home) -> list[str]:
    try:
        return sorted(entry.name for entry in home.jobs.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def _recover(store: Store, job_id: str, size: int, report: Report) -> None:
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


def _bury_deleted(store: Store, report: Report) -> None:
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
