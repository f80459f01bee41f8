"""What happened to jobs: who asked for what, when and from where, and every change that came of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UnknownName
from workbench.formats import iso
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.documents.events import HappeningEvent
    from workbench.documents.jobs import HappeningDocument, HappeningFields
    from workbench.job import HistoryKind
    from workbench.store.db.database import Store

HISTORY_KINDS: Final = ("state", "request", "learner", "note", "annotate")
DEFAULT_KINDS: Final = tuple(kind for kind in HISTORY_KINDS if kind != "learner")
WINDOW_ENTRIES: Final = 1000
"""How many of the latest entries are compared: learners report late, with their own times."""
POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One thing that happened to a job."""

    time_us: int
    job_id: str
    name: str
    attempt: int
    kind: HistoryKind
    state: str
    text: str
    code: str
    who: str
    origin: str
    """The client that asked for it, or the controller."""
    number: int
    """The job's how-manieth entry."""

    def document(self) -> HappeningDocument:
        """Return it as ``--json`` gives it, schema ``fabric.happening/1``."""
        return {"schema": "fabric.happening/1", **self._fields()}

    def event(self) -> HappeningEvent:
        """Return it as a line of a command that follows."""
        return {"schema": "fabric.event/1", "event": self.kind, **self._fields()}

    def _fields(self) -> HappeningFields:
        return {
            "time": iso(self.time_us),
            "id": self.job_id,
            "name": self.name,
            "attempt": self.attempt,
            "kind": self.kind,
            "state": self.state,
            "text": self.text,
            "code": self.code,
            "who": self.who,
            "origin": self.origin,
        }


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which entries are meant."""

    job: str = ""
    """An id, a part of one, a name or ``@last``; empty takes all jobs."""
    where: tuple[str, ...] = ()
    """Filters of jobs, as ``--where`` takes them."""
    who: str = ""
    """A part of a user's name."""
    since: str = ""
    """A time or a duration, as ``5m`` or ``2026-01-31``."""
    kinds: tuple[str, ...] = DEFAULT_KINDS
    limit: int = 50
    """The latest so many."""


def read_kinds(text: str) -> tuple[str, ...]:
    """Read the kinds of entries that a text names with commas; an empty one names the usual.

    Raises:
        UnknownName: there is no such kind.
    """
    from workbench.manifest.yaml.faults import nearest

    names = [name for name in text.replace(" ", "").split(",") if name]
    for name in names:
        if name not in HISTORY_KINDS:
            close = nearest(name, HISTORY_KINDS)
            hint = f"did you mean {close}?" if close else f"kinds are {', '.join(HISTORY_KINDS)}"
            raise UnknownName(f"unknown kind of event '{name}'", hint=hint)
    return tuple(names) or DEFAULT_KINDS


def history(store: Store, query: HistoryQuery) -> tuple[HistoryEntry, ...]:
    """Return the latest entries, the last one last.

    Raises:
        UsageError: a filter or the time cannot be read.
        UnknownName: there is no such job.
    """
    return _HistoryReader(store, query).read(query.limit)


def follow_history(
    store: Store, query: HistoryQuery, *, cancel: threading.Event | None = None
) -> Iterator[tuple[HistoryEntry, ...]]:
    """Yield the latest entries, then those that come, until ``cancel`` is set.

    Raises:
        FabricError: as :func:`history`.
    """
    reader = _HistoryReader(store, query)
    version = store.counter("transitions")
    entries = reader.read(max(query.limit, WINDOW_ENTRIES))
    yield entries[-query.limit :]
    known = {(entry.job_id, entry.number) for entry in entries}
    while cancel is None or not cancel.is_set():
        time.sleep(POLL_SECONDS)
        if (now := store.counter("transitions")) == version:
            continue
        version = now
        new = [entry for entry in reader.read(WINDOW_ENTRIES) if (entry.job_id, entry.number) not in known]
        known |= {(entry.job_id, entry.number) for entry in new}
        if new:
            yield tuple(new)


class _HistoryReader:
    """Reads the entries that a query means; the query is checked once."""

    def __init__(self, store: Store, query: HistoryQuery) -> None:
        self._store = store
        self._conditions, self._values = _conditions(store, query)

    def read(self, limit: int) -> tuple[HistoryEntry, ...]:
        """Return the latest so many entries, the last one last."""
        sql = (
            "SELECT transitions.time_us, jobs.id, jobs.name, transitions.attempt, transitions.kind, "
            "transitions.state, transitions.text, transitions.code, transitions.who, transitions.origin, "
            "transitions.id FROM transitions JOIN jobs ON jobs.id = transitions.job_id "
            f"WHERE {' AND '.join(self._conditions)} "
            f"ORDER BY transitions.time_us DESC, transitions.id DESC LIMIT {limit}"
        )
        return tuple(HistoryEntry(*row) for row in self._store.rows(sql, self._values)[::-1])


def _conditions(store: Store, query: HistoryQuery) -> tuple[Sequence[str], dict[str, Any]]:
    from workbench.clock import now_us
    from workbench.services.filters import read_where
    from workbench.store.queries.resolve import resolve
    from workbench.store.queries.where import teach
    from workbench.time_expressions import since_us

    teach(store.connection, store.home)
    where = read_where(store, list(query.where))
    kinds = ", ".join(repr(kind) for kind in query.kinds)
    conditions = [f"({where.sql})", f"transitions.kind IN ({kinds})"]
    values: dict[str, Any] = {**dict(where.values), "now_us": now_us()}
    if query.job:
        conditions.append("jobs.id = :job")
        values["job"] = resolve(store, query.job).id
    if query.who:
        conditions.append("instr(lower(transitions.who), :who)")
        values["who"] = query.who.lower()
    if query.since:
        conditions.append("transitions.time_us >= :since")
        values["since"] = since_us(query.since, now_us())
    return conditions, values
