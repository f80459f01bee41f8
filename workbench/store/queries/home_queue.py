"""Where the jobs of this home that wait stand: by priority, then position, then submission, each from its time on.

Priority, position, weight and time can be changed while a job waits. The change is a request in the history, and the
last one that the controller has accepted holds, over restarts too: the history alone says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from workbench.clock import now_us
from workbench.errors import FabricError
from workbench.job import BEFORE_THE_COMMAND, TERMINAL, Intent, State
from workbench.spec import DEFAULT_PRIORITY, DEFAULT_WEIGHT, JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import detail, job, open_jobs
from workbench.store.queries.requests import add_request
from workbench.time_expressions import iso_us
from workbench.values import dataclass

KIND: Final = "queue"
"""The kind of the requests that change where a job stands."""

_SET_TOGETHER: Final = {"priority", "weight"}
"""What such a request says instead of the manifest."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a job stands in its home's queue."""

    priority: int
    """Larger goes first."""
    position: float
    """Orders jobs of one priority, smaller first: the number of the submission until the job is moved."""
    begin: str | None = None
    """The time that it waits for, ISO 8601, empty for none; None: that of its manifest."""
    weight: float = DEFAULT_WEIGHT
    """Its part of the person's GPUs, where the host's policy shares them."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits, with where it stands."""

    row: JobRow
    stands: QueuePosition

    @property
    def order(self) -> tuple[float, float, int]:
        """What the jobs of one machine are sorted by."""
        return (-self.stands.priority, self.stands.position, self.row.seq)


def queue_position(store: Store, row: JobRow, spec: JobSpec) -> QueuePosition:
    """Return where a job stands; ``spec`` has the priority and weight that hold until others were set."""
    sql = "SELECT payload FROM requests WHERE job_id = ? AND kind = ? AND outcome = 'done' ORDER BY id DESC LIMIT 1"
    found = store.row(sql, (row.id, KIND))
    return _position(json.loads(found[0]) if found else {}, row, spec)


def waiting_jobs(store: Store, *, asked: bool = False) -> list[WaitingJob]:
    """List the jobs that wait for their turn, each machine's in their order.

    One that a time, another job, or want of GPUs or CPUs holds back waits, too, while it is prepared for its host.

    ``asked``: as they will stand once the controller has answered what was asked already.
    """
    rows = [row for row in open_jobs(store) if row.state in BEFORE_THE_COMMAND and row.intent is Intent.NONE]
    changed = _changed(store, (row.id for row in rows), ("done", "") if asked else ("done",))
    found = []
    for row in rows:
        payload = changed.get(row.id, {})
        if row.state is not State.QUEUED and not _is_held_back(store, row, payload):
            continue
        spec = None if payload.keys() >= _SET_TOGETHER else _submitted(store, row)
        found.append(WaitingJob(row, _position(payload, row, spec)))
    return sorted(found, key=lambda one: (one.row.target.machine, one.order))


def ask_for_position(
    store: Store, row: JobRow, stands: QueuePosition, text: str, who: str, origin: str
) -> int:
    """Ask that a job stand somewhere else; return the request's id. ``text`` says it in words, for its history.

    Raises:
        HomeNotBound: the home is a copy: no controller may answer there.
    """
    payload: dict[str, Any] = {
        "priority": stands.priority,
        "position": stands.position,
        "weight": stands.weight,
        "text": text,
    }
    if stands.begin is not None:
        payload["begin"] = stands.begin
    return add_request(store, KIND, row.id, payload, who, origin)


def _changed(store: Store, job_ids: Iterable[str], outcomes: tuple[str, ...]) -> Mapping[str, dict[str, Any]]:
    sql = (
        "SELECT job_id, payload FROM requests WHERE job_id IN (SELECT value FROM json_each(?)) AND kind = ? "
        "AND outcome IN (SELECT value FROM json_each(?)) ORDER BY id"
    )
    found = store.rows(sql, (json.dumps(list(job_ids)), KIND, json.dumps(outcomes)))
    return {job_id: json.loads(payload) for job_id, payload in found}


def _is_held_back(store: Store, row: JobRow, payload: Mapping[str, Any]) -> bool:
    """Say whether a job that is prepared cannot start: by its time, the jobs before it, or what it says.

    Of one that it gives to its host the controller says why it waits. A cluster's own words are not meant.
    """
    if row.target.type != "kubernetes" and row.reason.text.startswith("waits"):
        return True
    try:
        spec = detail(store, row.id).spec
    except FabricError:
        return False
    begin = iso_us(str(payload.get("begin", spec.begin)))
    if begin is not None and begin > now_us():
        return True
    before = (job(store, one.partition(":")[0]) for one in spec.after)
    return any(one is not None and one.state not in TERMINAL for one in before)


def _submitted(store: Store, row: JobRow) -> JobSpec | None:
    try:
        return detail(store, row.id).spec
    except FabricError:
        return None  # its folder is gone: the controller takes it for one that says nothing


def _position(payload: Mapping[str, Any], row: JobRow, spec: JobSpec | None) -> QueuePosition:
    priority, weight = (DEFAULT_PRIORITY, DEFAULT_WEIGHT) if spec is None else (spec.priority, spec.weight)
    return QueuePosition(
        int(payload.get("priority", priority)),
        float(payload.get("position", row.seq)),
        payload.get("begin"),
        float(payload.get("weight", weight)),  # an older fabric's has none
    )
