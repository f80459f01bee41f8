"""The value of a job's metric as filters, conditions, orders and columns name it: ``loss``, ``min(loss)``.

One meaning for all: the metric is named whole or by its last part; the first learner that has reported it
counts, and of its metrics that fit the one with the shortest name. ``min`` and ``max`` are the least and the
greatest finite value. Superseded points count nowhere, and a value that is NaN fits no comparison.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from workbench.store.db.rows import SeriesRow
from workbench.store.queries.superseded import Cut, condition, live, series_cuts

WHICH: Final[Mapping[str, str]] = {"last": "last", "min": "minimum", "max": "maximum"}
"""Words for the value that is meant, and where it stands in a series."""

KINDS: Final = ("value", "etime")
"""The kinds of series that are metrics, the first one's names first."""

_NAMED: Final = re.compile(rf"({'|'.join(WHICH)})\(\s*([^()]+?)\s*\)", re.IGNORECASE)
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True)
class MetricName:
    """Which value of which metric is meant."""

    name: str
    which: str = "last"
    """A key of :data:`WHICH`."""


def read_metric(text: str) -> MetricName:
    """Read ``loss``, or ``min(loss)``."""
    found = _NAMED.fullmatch(text)
    return MetricName(found[2], found[1].lower()) if found else MetricName(text)


def read_number(text: str) -> float:
    """Read ``0.3``, ``1e-4``, ``90%``, or a time: ``2h``.

    Raises:
        ValueError: it is no number.
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
        "ORDER BY learner, kind DESC, length(name), name LIMIT 1"
    )


def live_sql(column: str) -> str:
    """Return the SQL of what a row of ``series`` comes to: ``last``, ``minimum``, ``points``, ``superseded``, ..."""
    several = "(SELECT attempt FROM main.jobs WHERE jobs.id = series.job_id) > 1"
    plain = "0" if column == "superseded" else column
    if column in WHICH.values():
        several += f" OR abs({column}) = 9e999"
    return f"CASE WHEN {several} THEN live_value(id, '{column}') ELSE {plain} END"


def teach_values(connection: sqlite3.Connection) -> None:
    """Teach a connection what superseded points are.

    ``live_value(series, column)`` is what a series comes to without them, ``is_superseded(series, attempt, step,
    time)`` is 1 for one of them.
    """
    known: dict[int, Mapping[int, Cut]] = {}

    def cuts_of(series_id: int) -> tuple[Cut, ...]:
        sql = "SELECT job_id, learner FROM main.series WHERE id = ?"
        row = connection.execute(sql, (series_id,)).fetchone()
        return () if row is None else series_cuts(connection, row[0], row[1], series_id)

    def live_value(series_id: int, column: str) -> float | None:
        found: float | None = getattr(live(connection, series_id, condition(cuts_of(series_id))), column)
        return found

    def is_superseded(series_id: int, attempt: int, step: float | None, time_us: int) -> int:
        if series_id not in known:
            known[series_id] = {cut.attempt: cut for cut in cuts_of(series_id)}
        cut = known[series_id].get(attempt)
        return int(cut is not None and cut.holds(step, time_us))

    connection.create_function("live_value", 2, live_value)
    connection.create_function("is_superseded", 4, is_superseded)
