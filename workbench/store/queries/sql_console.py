"""Lets a person query the store by SQL: over documented views, by a connection that can change nothing.

The file is opened for reading only, the connection refuses writes by itself, and an authorizer lets nothing
pass but reading, so that no statement attaches a file, sets a pragma, or loads code.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from workbench.errors import FabricError, InputMissing, NotAllowed, UsageError, not_utf8
from workbench.expression import take_failure
from workbench.paths import Home
from workbench.store.db.home_folder import refuse_linked_copy
from workbench.store.db.rows import EARLIER_US_SQL
from workbench.store.queries.metric_values import live_sql
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class SqlView:
    """A documented table; columns are added to it, never removed."""

    name: str
    about: str
    columns: tuple[str, ...]
    sql: str


def _utc(column: str) -> str:
    seconds = f"({column}) / 1000000"
    fraction = f"printf('.%06dZ', ({column}) % 1000000)"
    return f"strftime('%Y-%m-%dT%H:%M:%S', {seconds}, 'unixepoch') || {fraction}"


_JOB: Final = {
    "id": "id",
    "name": "name",
    "state": "state",
    "reason": "reason",
    "reason_code": "reason_code",
    "exit_code": "exit_code",
    "exit_by": "exit_by",
    "attempt": "attempt",
    "backend": "backend",
    "runner": "json_extract(place, '$.runner')",
    "owner": "owner",
    "submitted": _utc("submitted_us"),
    "started": _utc("started_us"),
    "ended": _utc("ended_us"),
    "seconds": f"CASE WHEN ended_us IS NOT NULL AND started_us IS NOT NULL "
    f"THEN ({EARLIER_US_SQL} + ended_us - started_us) / 1e6 END",
    "learners": "learners",
    "gpus": "gpus",
    "cpus": "cpus",
    "memory_bytes": "memory_bytes",
    "restarts": "restarts",
    "platform_restarts": "platform_restarts",
    "labels": "labels",
    "tags": "tags",
    "note": "note",
    "parent": "parent",
    "trial": "trial",
}
_ATTEMPT: Final = {
    "id": "job_id",
    "attempt": "attempt",
    "state": "state",
    "reason": "reason",
    "reason_code": "reason_code",
    "exit_code": "exit_code",
    "node": "node",
    **{
        phase: _utc(f"{phase}_us")
        for phase in ("queued", "pending", "downloading", "processing", "storing", "ended")
    },
}
_LEARNER: Final = {
    "id": "job_id",
    "attempt": "attempt",
    "learner": "learner",
    "phase": "phase",
    "exit_code": "exit_code",
    "signal": "signal",
    "started": _utc("started_us"),
    "ended": _utc("ended_us"),
    "seconds": "(ended_us - started_us) / 1e6",
    "decided": "decided",
    "node": "node",
    "slots": "slots",
}
_METRIC: Final = {
    "id": "job_id",
    "learner": "learner",
    "name": "name",
    "kind": "kind",
    "points": live_sql("points"),
    "step": live_sql("last_step"),
    "last": live_sql("last"),
    "least": live_sql("minimum"),
    "greatest": live_sql("maximum"),
    "time": _utc(live_sql("last_time_us")),
    "series": "id",
    "superseded": live_sql("superseded"),
}
_POINT: Final = {
    "series": "series",
    "number": "seq",
    "attempt": "attempt",
    "step": "counted_step(series, seq, step)",
    "time": _utc("time"),
    "value": "value",
    "superseded": "is_superseded(series, seq, attempt, time)",
}
_EVENT: Final = {
    "id": "job_id",
    "number": "id",
    "attempt": "attempt",
    "time": _utc("time_us"),
    "kind": "kind",
    "state": "state",
    "text": "text",
    "code": "code",
    "who": "who",
    "origin": "origin",
}
_CHECKPOINT: Final = {
    "id": "job_id",
    "attempt": "attempt",
    "learner": "learner",
    "time": _utc("time_us"),
    "step": "step",
    "path": "path",
    "metrics": "metrics",
    "metadata": "metadata",
}


def _view(name: str, about: str, columns: dict[str, str], table: str, where: str = "1") -> SqlView:
    chosen = ", ".join(f"{source} AS {column}" for column, source in columns.items())
    return SqlView(name, about, tuple(columns), f"SELECT {chosen} FROM main.{table} WHERE {where}")


VIEWS: Final = (
    _view("jobs", "one row a job, without deleted ones", _JOB, "jobs", "deleted_us IS NULL"),
    _view("attempts", "one row for each start of a job", _ATTEMPT, "attempts"),
    _view("learners", "one row for each learner of each attempt", _LEARNER, "learners"),
    _view(
        "metrics",
        "one row for each metric of each learner, with its last, least and greatest value; `superseded` points, "
        "which a later attempt went over again, count apart",
        _METRIC,
        "series",
    ),
    _view(
        "points",
        "every value of a metric; `series` is that of `metrics`, `superseded` is 1 where a later attempt went over it",
        _POINT,
        "points",
    ),
    _view("events", "everything that happened to jobs, and who did it", _EVENT, "transitions"),
    _view("checkpoints", "every checkpoint that a learner reported", _CHECKPOINT, "checkpoints"),
)

FUNCTIONS: Final = {
    "setting(id, 'params.lr')": "any setting of a job, as `fabric show --origin` lists them",
    "regexp": "`text REGEXP 'pattern'`, in any case",
}

_ALLOWED: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_FORBIDDEN_FUNCTIONS: Final = frozenset({"load_extension", "fts3_tokenizer", "writefile", "edit"})
_NO_SUCH: Final = re.compile(r"no such (table|column|function): (\S+)")
_NEAR: Final = re.compile(r'near "(.*)": syntax error', re.DOTALL)

_SIGNALS_EVERY: Final = 100_000
"""Steps of SQLite's machine after which Python may take a signal."""


class SqlConnection:
    """A connection that only reads."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, text: str) -> sqlite3.Cursor:
        """Run one statement.

        Raises:
            NotAllowed: it does more than read.
            UsageError: the SQL is wrong, or names something that does not exist.
        """
        try:
            return self._connection.execute(text)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise _explain(error, text) from None

    def rows(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        """Yield the rows; raises as :meth:`run` does."""
        try:
            yield from cursor
        except sqlite3.Error as error:
            raise _explain(error, "") from None


@contextmanager
def open_views(home: Home) -> Iterator[SqlConnection]:
    """Open the store of a home for reading.

    Raises:
        InputMissing: it cannot be opened.
        HomeNotBound: it is a copy whose database is a hard link to the original's.
    """
    refuse_linked_copy(home)
    try:
        connection = sqlite3.connect(f"file:{quote(str(home.database))}?mode=ro", uri=True, timeout=10.0)
        connection.execute("SELECT count(*) FROM main.jobs LIMIT 1").fetchone()
    except sqlite3.Error as error:
        raise InputMissing(f"{home.database} cannot be read: {error}", hint="fabric doctor") from None
    try:
        for view in VIEWS:
            connection.execute(f"CREATE TEMP VIEW {view.name} AS {view.sql}")
        _teach(connection, home)
        connection.execute("PRAGMA query_only = 1")
        connection.set_progress_handler(lambda: 0, _SIGNALS_EVERY)
        connection.set_authorizer(_authorize)
        yield SqlConnection(connection)
    finally:
        connection.close()


def _teach(connection: sqlite3.Connection, home: Home) -> None:
    from workbench.store.history.job_file import read_job_document, with_changes
    from workbench.store.queries.where import teach

    known: dict[str, Any] = {}

    def setting(job_id: str, path: str) -> Any:
        if job_id not in known:
            try:
                known[job_id] = with_changes(home, read_job_document(home, job_id))["spec"]
            except (FabricError, KeyError):
                known[job_id] = {}
        node = known[job_id]
        for part in str(path).split("."):
            if isinstance(node, list):
                node = node[int(part)] if part.isdecimal() and int(part) < len(node) else None
            else:
                node = node.get(part) if isinstance(node, dict) else None
        return node if node is None or isinstance(node, (int, float, str)) else str(node)

    teach(connection, home)
    connection.create_function("setting", 2, setting, deterministic=True)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _explain(error: Exception, text: str) -> FabricError:
    message = str(error)
    if isinstance(error, UnicodeEncodeError):
        return not_utf8(text)
    if (too_slow := take_failure()) is not None:
        return too_slow
    if (
        "not authorized" in message
        or "readonly" in message
        or "prohibited" in message
        or "cannot modify" in message
    ):
        return NotAllowed("fabric sql only reads", hint="SELECT ...; other commands change jobs")
    if "one statement at a time" in message:
        return UsageError("fabric sql takes one statement at a time")
    if missing := _NO_SUCH.match(message):
        return UsageError(
            _pointed(f"there is no {missing[1]} {missing[2]!r}", text, missing[2]), hint=_near(missing)
        )
    if near := _NEAR.match(message):
        return UsageError(_pointed("SQL syntax error", text, near[1]), hint="`fabric sql` lists the views")
    return UsageError(f"SQLite says: {message}", hint="`fabric sql` lists the views and their columns")


def _near(missing: re.Match[str]) -> str:
    from workbench.manifest.yaml.faults import nearest

    name = missing[2].rpartition(".")[2]
    if missing[1] == "table":
        known = [view.name for view in VIEWS]
    else:
        known = list(dict.fromkeys(column for view in VIEWS for column in view.columns))
    close = nearest(name, known)
    return f"did you mean {close}?" if close else "`fabric sql` lists the views and their columns"


def _pointed(message: str, text: str, part: str) -> str:
    line = text.replace("\n", " ").replace("\t", " ")
    at = line.find(part) if part else -1
    return f"{message}\n  {line}\n  {' ' * at}{'^' * len(part)}" if at >= 0 else message
