"""The value of a job's metric as filters, conditions, orders and columns name it: ``loss``, ``min(loss)``.

One meaning for all: the metric is named whole or by its last part; the first learner that has reported it
counts, and of its metrics that fit the one with the shortest name. A name in quotation marks is taken as it is: of
``"min(loss)"`` the last value counts. ``min`` and ``max`` are the least and the
greatest finite value. Superseded points count nowhere, and a value that is NaN fits no comparison.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

from workbench.store.db.database import Store
from workbench.store.db.rows import SeriesRow
from workbench.store.queries.listed_series import HAS_ATTEMPTS, LISTED
from workbench.store.queries.step_course import StepCourse, course_of, database_of
from workbench.store.queries.superseded import NOTHING, Cut, condition, last_live, live, series_cuts
from workbench.values import dataclass

WHICH: Final[Mapping[str, str]] = {"last": "last", "min": "minimum", "max": "maximum"}
"""Words for the value that is meant, and where it stands in a series."""

KINDS: Final = ("value", "etime")
"""The kinds of series that are metrics, the first one's names first."""

NAMES_SHOWN: Final = 8

_OF_LAST: Final = ("last_step", "last_time_us", "last")
"""What the last point that counts tells; no other is read for it."""

_NAMED: Final = re.compile(rf"({'|'.join(WHICH)})\(\s*(\"[^\"]+\"|[^()]+?)\s*\)", re.IGNORECASE)
_MARK: Final = '"'
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True)
class MetricName:
    """Which value of which metric is meant."""

    name: str
    which: str = "last"
    """A key of :data:`WHICH`."""


def read_metric(text: str) -> MetricName:
    """Read ``loss``, ``min(loss)``, or ``"min(loss)"`` for a metric that is called so."""
    found = _NAMED.fullmatch(text)
    return MetricName(unquoted(found[2]), found[1].lower()) if found else MetricName(unquoted(text))


def unquoted(name: str) -> str:
    """Return a name without the quotation marks around it, if it has some."""
    is_quoted = len(name) > len(_MARK * 2) and name[0] == name[-1] == _MARK
    return name[1:-1] if is_quoted else name


def read_number(text: str) -> float:
    """Read ``0.3``, ``1e-4``, ``90%``, or a time: ``2h``.

    Raises:
        ValueError: it is not a number.
    """
    if text.endswith("%"):
        return float(text[:-1]) / 100
    lower = text.lower()
    unit = lower[-1:] if lower[-1:] in _UNITS else ""
    return float(lower.removesuffix(unit)) * _UNITS[unit]


def fitting_series(rows: Iterable[SeriesRow], name: str) -> SeriesRow | None:
    """Return the series of a job that a name stands for; None where none fits."""
    folded = _lower(name)
    fitting = [
        row
        for row in rows
        if row.kind in KINDS
        and row.points
        and (_lower(row.name) == folded or _lower(row.name).endswith(f"/{folded}"))
    ]
    return min(
        fitting,
        key=lambda row: (row.learner, KINDS.index(row.kind), len(row.name), row.name),
        default=None,
    )


def find_series(store: Store, job_id: str, name: str) -> int | None:
    """Return the id of the series of a job that a name stands for, letters as written; None where none has points."""
    rows = store.rows(
        "SELECT id FROM series WHERE job_id = ? AND kind IN ('value', 'etime') AND points > 0"
        " AND (name = ? OR substr(name, -length(?)) = ?) ORDER BY learner, kind DESC, length(name) LIMIT 1",
        (job_id, name, f"/{name}", f"/{name}"),
    )
    return int(rows[0][0]) if rows else None


@dataclass(frozen=True, slots=True)
class BestOfTrials:
    """The best value of the trials of a search, and whose it is."""

    value: float
    job_id: str
    trials: int
    """How many trials have reported one; each learner counts."""


def best_of_trials(
    store: Store, experiment_id: str, name: str, *, is_less_better: bool, learners: int = 1, begins: str = ""
) -> BestOfTrials | None:
    """Return the best finite value that the trials of a search have reported of a metric; None where none has.

    What the series have in their rows is a bound: points are read only of those that may have the best one, and only
    where some may not count. So it takes no longer where trials have reported much.

    Args:
        store: The store.
        experiment_id: Which search.
        name: The metric's whole name.
        is_less_better: Whether the least value is the best one.
        learners: How many each trial has: to name them all is faster than not to.
        begins: The job of a trial that is about to begin another attempt: what it has reported behind its last
            checkpoint is given up then.
    """
    column, order = ("minimum", "ASC") if is_less_better else ("maximum", "DESC")
    sql = (
        f"SELECT series.id, series.job_id, learner, {column} FROM trials JOIN series ON series.job_id = trials.job_id"
        f" WHERE experiment = ? AND learner IN ({', '.join(map(str, range(1, learners + 1)))})"
        f" AND kind = 'value' AND name = ? AND {column} IS NOT NULL"
        f" ORDER BY {column} {order}"
    )
    best: BestOfTrials | None = None
    rows = list(store.rows(sql, (experiment_id, name)))
    for series_id, job_id, learner, bound in rows:
        if best is not None and (bound >= best.value if is_less_better else bound <= best.value):
            break
        hidden = condition(series_cuts(store.connection, job_id, learner, series_id))
        if job_id == begins:
            hidden = f"{hidden} OR {_behind_checkpoint(store, job_id)}"
        value: float | None = bound
        if hidden != NOTHING or math.isinf(bound):
            value = getattr(live(store.connection, series_id, hidden), column)
        if value is None:
            continue
        if best is None or (value < best.value if is_less_better else value > best.value):
            best = BestOfTrials(value, job_id, len(rows))
    return best


def _behind_checkpoint(store: Store, job_id: str) -> str:
    """Return the condition that a point of a job lies behind its last checkpoint, by its time and by its step."""
    sql = "SELECT time_us, step FROM checkpoints WHERE job_id = ? ORDER BY attempt DESC, time_us DESC LIMIT 1"
    time_us, step = store.row(sql, (job_id,)) or (None, None)
    if time_us is None:
        return "1"
    return f"time > {time_us}" if step is None else f"(time > {time_us} AND coalesce(step > {step}, 1))"


def reported_names(store: Store, job_id: str, *, points: int = 1) -> str:
    """Return the names of what a job has reported so often, in one text; empty for nothing."""
    names = metric_names(store, job_id, points=points)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def metric_names(store: Store, job_id: str, *, points: int = 1) -> list[str]:
    """Return the names of what a job has reported so often."""
    where = "job_id = ? AND kind IN ('value', 'etime') AND points >= ?"
    sql = f"SELECT DISTINCT name FROM series WHERE {where} ORDER BY name"
    return [str(name) for (name,) in store.rows(sql, (job_id, points))]


def _lower(text: str) -> str:
    """Return a text with the letters in lower case that SQLite knows: those of ASCII."""
    return text.encode("utf-8", "replace").lower().decode()


def value_sql(which: str, bound: str) -> str:
    """Return the SQL of a metric's value, within a query of ``jobs``; ``bound`` is its name, in any case.

    It is NULL where the value is NaN or the job has no such metric. The connection must know ``live_value``
    (:func:`teach_values`).
    """
    column = WHICH[which]
    value = f"CASE WHEN jobs.attempt > 1 OR abs({column}) = 9e999 THEN live_value(id, '{column}') ELSE {column} END"
    return f"(SELECT {value} {_from_series(bound)})"


def learner_sql(bound: str) -> str:
    """Return the SQL of the learner whose value that is."""
    return f"(SELECT learner {_from_series(bound)})"


def names_metric(bound: str) -> str:
    """Return the condition that a series has a name: whole, or its last part."""
    return (
        f"(lower(name) = lower({bound}) OR substr(lower(name), -length({bound}) - 1) = '/' || lower({bound}))"
    )


def _from_series(bound: str) -> str:
    kinds = ", ".join(f"'{kind}'" for kind in KINDS)
    return (
        f"FROM series WHERE job_id = jobs.id AND kind IN ({kinds}) AND {names_metric(bound)} "
        f"AND {LISTED} "
        "ORDER BY learner, kind DESC, length(name), name LIMIT 1"
    )


def live_sql(column: str) -> str:
    """Return the SQL of what a row of ``series`` comes to: ``last``, ``minimum``, ``points``, ``superseded``, ..."""
    several = HAS_ATTEMPTS
    plain = {"superseded": "0", "last_step": "counted_last_step(id, last_step)"}.get(column, column)
    if column in WHICH.values():
        several += f" OR abs({column}) = 9e999"
    return f"CASE WHEN {several} THEN live_value(id, '{column}') ELSE {plain} END"


def teach_values(connection: sqlite3.Connection) -> None:
    """Teach a connection what superseded points are.

    ``live_value(series, column)`` is what a series comes to without them, ``is_superseded(series, number, attempt,
    time)`` is 1 for one of them, ``counted_step(series, number, step)`` is the step of a point in the one count,
    ``counted_last_step(series, step)`` that of the last one, ``database_file()`` what tells the database from others.
    """
    database = database_of(connection)
    known: dict[int, Mapping[int, Cut]] = {}
    courses: dict[int, StepCourse] = {}

    def cuts_of(series_id: int) -> tuple[Cut, ...]:
        sql = "SELECT job_id, learner FROM main.series WHERE id = ?"
        row = connection.execute(sql, (series_id,)).fetchone()
        return () if row is None else series_cuts(connection, row[0], row[1], series_id)

    def live_value(series_id: int, column: str) -> float | None:
        hidden = condition(cuts_of(series_id))
        if column in _OF_LAST:
            return last_live(connection, series_id, hidden)[_OF_LAST.index(column)]
        found: float | None = getattr(live(connection, series_id, hidden), column)
        return found

    def counted_step(series_id: int, seq: int, step: float | None) -> float | None:
        if series_id not in courses:
            courses[series_id] = course_of(connection, series_id)
        return courses[series_id].step(seq, step)

    def counted_last_step(series_id: int, last_step: float | None) -> float | None:
        if last_step is None or not course_of(connection, series_id):
            return last_step
        return last_live(connection, series_id, NOTHING)[0]

    def is_superseded(series_id: int, seq: int, attempt: int, time_us: int) -> int:
        if series_id not in known:
            known[series_id] = {cut.attempt: cut for cut in cuts_of(series_id)}
        cut = known[series_id].get(attempt)
        return int(cut is not None and cut.holds(seq, time_us))

    connection.create_function("database_file", 0, lambda: database)
    connection.create_function("live_value", 2, live_value)
    connection.create_function("is_superseded", 4, is_superseded)
    connection.create_function("counted_step", 3, counted_step)
    connection.create_function("counted_last_step", 2, counted_last_step)
