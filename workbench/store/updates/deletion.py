"""Deleting jobs: the rows go, a tombstone stays, so that learners that turn up later may still be removed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from workbench.clock import now_us
from workbench.store.db.database import Store
from workbench.store.db.rows import dump
from workbench.store.history.journal import append_line, catch_up
from workbench.store.history.projection import at_least
from workbench.store.queries.jobs import job
from workbench.store.queries.reports import has_reports

_BY_JOB: Final = (
    "attempts",
    "learners",
    "journals",
    "transitions",
    "requests",
    "checkpoints",
    "progress",
    "notes",
)

_CHUNK: Final = 200_000
"""So many points are removed in one transaction: writers wait that long at most."""


def mark_deleted(store: Store, job_id: str, *, who: str = "", origin: str = "") -> None:
    """Turn a job into a tombstone and remove its other rows.

    Its folder is left to the caller, to be removed afterwards.

    Pending requests for it are gone too; whoever waits for one sees the tombstone.
    """
    catch_up(store, job_id)
    row = job(store, job_id)
    if row is None:
        return
    if row.deleted_us is not None:
        purge_metrics(store, job_id)  # whoever deleted it may have been cut off before that
        return
    deleted_us = now_us()
    document = {
        "id": job_id, "seq": row.seq, "name": row.name, "owner": row.owner, "state": row.state.value,
        "attempt": row.attempt, "learners": row.learners, "submitted_us": row.submitted_us,
        "deleted_us": deleted_us,
        "place": json.loads(store.rows("SELECT place FROM jobs WHERE id = ?", (job_id,))[0][0]),
        # Numbers of its requests must not be given again, and nothing else remembers them.
        "next_request": store.counter("next_request"),
        "who": who, "origin": origin,
    }  # fmt: skip
    with store.atomic():
        append_line(store.home, store.home.tombstones, document, durable=True, store=store)
        bury(store, document)
    purge_metrics(store, job_id)


def bury(store: Store, document: Mapping[str, Any]) -> None:
    """Make the row of a job what its tombstone says, whether there is one or not; its other rows go."""
    for table in _BY_JOB:
        store.execute(f"DELETE FROM {table} WHERE job_id = ?", (document["id"],))
    target = document["place"]
    store.execute(
        "INSERT OR REPLACE INTO jobs (seq, id, name, state, place, backend, owner, submitted_us, changed_us, "
        "learners, gpus, attempt, deleted_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)",
        (
            document["seq"],
            document["id"],
            document["name"],
            document["state"],
            dump(target),
            target["backend"],
            document["owner"],
            document["submitted_us"],
            document["deleted_us"],
            document["learners"],
            document["attempt"],
            document["deleted_us"],
        ),
    )
    at_least(store, "next_job", document["seq"] + 1)
    at_least(store, "next_request", document.get("next_request", 1))


def purge_metrics(store: Store, job_id: str) -> None:
    """Remove a job's series and points, a part at a time, so that nobody waits long for the lock."""
    if has_reports(store.connection):
        with store.atomic():
            for table in ("report_runs", "report_counts"):
                store.execute(f"DELETE FROM {table} WHERE job_id = ?", (job_id,))
    for (series,) in store.rows("SELECT id FROM series WHERE job_id = ?", (job_id,)):
        for table, key in (("points", "seq"), ("texts", "seq")):
            while _purge_some(store, table, key, series):
                pass
        with store.atomic():
            store.execute("DELETE FROM rollups WHERE series = ?", (series,))
            store.execute("DELETE FROM series WHERE id = ?", (series,))
            store.bump("series")


def _purge_some(store: Store, table: str, key: str, series: int) -> bool:
    with store.atomic():
        edge = store.row(f"SELECT min({key}) FROM {table} WHERE series = ?", (series,))
        if edge is None or edge[0] is None:
            return False
        store.execute(f"DELETE FROM {table} WHERE series = ? AND {key} < ?", (series, edge[0] + _CHUNK))
    return True
