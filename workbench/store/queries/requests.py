"""Requests: what people ask of the controller, kept until the backend confirms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.clock import now_us
from workbench.errors import UnknownName
from workbench.store.db.database import Store
from workbench.store.db.home_folder import require_home
from workbench.store.db.rows import REQUEST_COLUMNS, RequestRow, dump, request_row
from workbench.store.history.journal import is_deleted, record


def add_request(
    store: Store, kind: str, job_id: str, payload: Mapping[str, Any], who: str, origin: str
) -> int:
    """Ask for something and return the request's id. ``job_id`` is empty for what concerns no job.

    Raises:
        HomeNotBound: the home is a copy: no controller may answer there.
        UnknownName: the job was deleted: its number would be given again.
    """
    require_home(store.home)
    with store.atomic():
        if job_id and is_deleted(store, job_id):
            raise UnknownName(f"there is no job {job_id}", hint="fabric list shows those there are")
        request_id = store.counter("next_request")
        if job_id:
            event = {"do": "request", "id": request_id, "kind": kind, "payload": dict(payload), "who": who}
            record(store, job_id, {**event, "origin": origin})
            return request_id
        store.bump("next_request")
        store.execute(
            "INSERT INTO requests (id, kind, job_id, payload, who, origin, time_us) "
            "VALUES (?, ?, '', ?, ?, ?, ?)",
            (request_id, kind, dump(dict(payload)), who, origin, now_us()),
        )
        return request_id


def pending_requests(store: Store) -> list[RequestRow]:
    """List what is still asked for, in the order of asking."""
    sql = f"SELECT {REQUEST_COLUMNS} FROM requests WHERE outcome = '' ORDER BY id"
    return [request_row(row) for row in store.rows(sql)]


def request(store: Store, request_id: int) -> RequestRow | None:
    """Return one request."""
    found = store.row(f"SELECT {REQUEST_COLUMNS} FROM requests WHERE id = ?", (request_id,))
    return request_row(found) if found else None


def settle_request(store: Store, request_id: int, outcome: str) -> None:
    """Say what became of a request: ``done``, or why not. One that is settled stays as it is."""
    with store.atomic():
        found = request(store, request_id)
        if found is None or found.outcome:
            return
        if found.job_id:
            record(store, found.job_id, {"do": "settle", "id": request_id, "outcome": outcome})
        else:
            store.execute("UPDATE requests SET outcome = ? WHERE id = ?", (outcome, request_id))


def requests(store: Store, job_id: str) -> list[RequestRow]:
    """List all that was ever asked for a job, in order."""
    sql = f"SELECT {REQUEST_COLUMNS} FROM requests WHERE job_id = ? ORDER BY id"
    return [request_row(row) for row in store.rows(sql, (job_id,))]
