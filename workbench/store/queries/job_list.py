"""Pages of the list of jobs, sorted by any column, by key, so that 10,000 jobs are never loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from workbench.job import State
from workbench.spec import SWEEP_LABEL
from workbench.store.db.database import Store
from workbench.store.db.rows import JOB_COLUMNS, RUN_US_SQL, JobRow, job_row
from workbench.store.queries.jobs import count_jobs
from workbench.store.queries.metric_values import (
    KINDS,
    LISTED,
    LISTED_LAST,
    LISTED_STEP,
    MetricName,
    learner_sql,
    read_metric,
    value_sql,
)
from workbench.store.queries.sweeps import SWEEP, Fold, FoldedJobs, folded_jobs, folds
from workbench.store.queries.where import JobFilter, teach
from workbench.values import dataclass

SORTS: Final[Mapping[str, str]] = {
    "submitted": "jobs.seq",
    "state": "jobs.state",
    "name": "lower(jobs.name)",
    "place": "jobs.backend",
    "owner": "jobs.owner",
    "gpus": "jobs.gpus",
    "changed": "jobs.changed_us",
    "time": RUN_US_SQL,
    "exit": "coalesce(jobs.exit_code, -1)",
}
"""Columns that jobs can be sorted by, and what they are compared by."""

_TIME: Final = SORTS["time"]
_STEP: Final = f"(SELECT max({LISTED_STEP}) FROM series WHERE series.job_id = jobs.id AND kind = 'value')"
_LOSS: Final = (
    f"(SELECT {LISTED_LAST} FROM series WHERE series.job_id = jobs.id AND kind = 'value' "
    f"AND lower(series.name) LIKE '%loss' AND {LISTED} "
    "ORDER BY lower(series.name) = 'loss' DESC, lower(series.name) LIKE 'train%' DESC, learner LIMIT 1)"
)
_DONE: Final = "(SELECT max(fraction) FROM progress WHERE progress.job_id = jobs.id)"
_OPEN: Final = "jobs.ended_us IS NULL"
COLUMN_SORTS: Final[Mapping[str, str]] = {
    "id": "jobs.id",
    "runner": "json_extract(jobs.place, '$.runner')",
    "tags": "lower(jobs.tags)",
    "why": "lower(jobs.reason)",
    "step": _STEP,
    "step/s": f"CASE WHEN {_OPEN} THEN 1.0 * {_STEP} / nullif({_TIME}, 0) END",
    "column loss": _LOSS,
    "done": _DONE,
    "left": f"CASE WHEN {_OPEN} THEN {_TIME} * (1 - {_DONE}) / nullif({_DONE}, 0) END",
}
"""More columns of lists on a screen, by names that no metric is meant by."""


VALUES_KNOWN: Final = 200
"""So many values of a field are proposed."""


def is_metric(sort: str) -> bool:
    """Say whether a list that is sorted by this is sorted by a metric."""
    return sort not in SORTS and sort not in COLUMN_SORTS


Key = tuple[str | int | float, int]
"""Where a row stands in an order: the value that it is sorted by, and its ``seq``."""


@dataclass(frozen=True, slots=True)
class JobList:
    """Which jobs are listed, and in which order."""

    where: JobFilter = field(default_factory=JobFilter)
    sort: str = "submitted"
    """A key of :data:`SORTS` or :data:`COLUMN_SORTS`, else a metric or ``min(metric)``."""
    descending: bool = True
    folds: bool = False
    """Whether the jobs of a sweep are one line."""
    opened: frozenset[str] = frozenset()
    """Sweeps that are not folded."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some consecutive rows of a listing."""

    rows: tuple[JobRow, ...]
    keys: tuple[Key, ...]
    """Where each row stands; one of them is the anchor of the next window."""
    start: int
    """How many rows of the listing stand before these."""
    total: int
    """Rows of the whole listing."""
    matching: int
    """Jobs of the whole listing, those too that are folded away."""
    jobs: int
    """All jobs there are, filtered or not."""
    states: Mapping[State, int]
    """How many jobs of the whole store are in each state."""
    folds: Mapping[str, Fold] = field(default_factory=dict)
    """What the rows stand for that are folds, by the ids of their jobs."""


def listed(
    store: Store,
    conditions: Sequence[str],
    values: Mapping[str, Any],
    *,
    where: JobFilter,
    sort: str = "submitted",
    descending: bool = True,
    now_us: int,
    limit: int | None = None,
) -> list[JobRow]:
    """Return all jobs that fit, in any order, for lists that are printed whole.

    Args:
        store: The store.
        conditions: More conditions on the table ``jobs``, with the ``values`` that they name.
        values: By name.
        where: The filter.
        sort: A key of :data:`SORTS`, else a metric or ``min(metric)``; jobs that have none of it come last.
        descending: Whether the greatest comes first.
        now_us: Now, for ages.
        limit: At most so many.
    """
    teach(store.connection, store.home)
    order, metric = (SORTS[sort], {}) if sort in SORTS else _metric_order(sort)
    named = {**values, **dict(where.values), "now_us": now_us, **metric}
    direction = "DESC" if descending else "ASC"
    page = "" if limit is None else f" LIMIT {int(limit)}"
    sql = (
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE {' AND '.join((*conditions, f'({where.sql})'))} "
        f"ORDER BY {order} {direction} NULLS LAST, jobs.seq {direction}{page}"
    )
    return [job_row(row, store.looked_us) for row in store.rows(sql, named)]


def metric_values(
    store: Store, job_ids: Sequence[str], metric: MetricName
) -> dict[str, tuple[int, float | None]]:
    """Return the learner and the value of a metric (None: it is NaN) of the jobs that have it."""
    teach(store.connection, store.home)
    found: dict[str, tuple[int, float | None]] = {}
    for first in range(0, len(job_ids), 500):
        named = {f"job{number}": job_id for number, job_id in enumerate(job_ids[first : first + 500])}
        sql = (
            f"SELECT id, {learner_sql(':metric')}, {value_sql(metric.which, ':metric')} FROM jobs "
            f"WHERE id IN ({', '.join(':' + name for name in named)})"
        )
        rows = store.rows(sql, {**named, "metric": metric.name.encode("utf-8", "replace").decode()})
        found |= {job_id: (learner, value) for job_id, learner, value in rows if learner is not None}
    return found


def known_metrics(store: Store) -> list[str]:
    """Return the name of every metric that any job has; ``etimes``, which say when it was, are none."""
    return _series_names(store, ("value",))


def known_numbers(store: Store) -> list[str]:
    """Return the name of everything that filters and columns can compare: metrics, and their ``etimes``."""
    return _series_names(store, KINDS)


def known_values(store: Store) -> dict[str, list[str]]:
    """Return by field of filters what the jobs have: backends, runners, owners, tags and labels; some, where many."""
    found = {
        "backend": "backend AS found FROM jobs",
        "runner": "json_extract(place, '$.runner') AS found FROM jobs",
        "owner": "owner AS found FROM jobs",
        "tag": "value AS found FROM jobs, json_each(jobs.tags)",
        "label": "key || '=' || value AS found FROM jobs, json_each(jobs.labels)",
    }
    ends = f"WHERE deleted_us IS NULL AND found <> '' ORDER BY found LIMIT {VALUES_KNOWN}"
    return {
        name: [str(value) for (value,) in store.rows(f"SELECT DISTINCT {what} {ends}")]
        for name, what in found.items()
    }


def _series_names(store: Store, kinds: Sequence[str]) -> list[str]:
    marks = ", ".join("?" * len(kinds))
    sql = f"SELECT DISTINCT name FROM series WHERE kind IN ({marks}) ORDER BY name"
    return [name for (name,) in store.rows(sql, tuple(kinds))]


def window(
    store: Store,
    listing: JobList,
    *,
    now_us: int,
    anchor: Key | None = None,
    offset: int | None = None,
    around: str = "",
    limit: int = 200,
) -> Window:
    """Return the rows around an anchor, half of them before it; without one the first, or from an offset.

    The anchor need not be there any more: it is a position in the order, not a row. The job ``around`` is an anchor
    where it is in the listing.
    """
    teach(store.connection, store.home)
    order, named = _order(listing)
    values: dict[str, Any] = {"now_us": now_us, **named, **dict(listing.where.values)}
    condition = f"jobs.deleted_us IS NULL AND ({listing.where.sql})"
    folded = _folded(store, listing, condition, order, values)
    lines = f"{condition} {folded.condition}"
    values |= folded.values

    def page(more: str, direction: str, count: int, skip: int = 0) -> list[tuple[JobRow, Key]]:
        found = store.rows(
            f"SELECT {JOB_COLUMNS}, {order} FROM jobs WHERE {lines} {more} "
            f"ORDER BY {order} {direction}, jobs.seq {direction} LIMIT {count} OFFSET {skip}",
            values,
        )
        return [(job_row(row[:-1], store.looked_us), (row[-1], row[1])) for row in found]

    def how_many(more: str = "") -> int:
        return int(store.rows(f"SELECT count(*) FROM jobs WHERE {lines} {more}", values)[0][0])

    if around:
        sql = f"SELECT {order}, jobs.seq FROM jobs WHERE {condition} AND jobs.id = :around"
        found = store.rows(sql, {**values, "around": around})
        anchor = (found[0][0], found[0][1]) if found else anchor
    forward, backward = ("DESC", "ASC") if listing.descending else ("ASC", "DESC")
    if anchor is None:
        start = max(0, offset or 0)
        rows = page("", forward, limit, start)
    else:
        values |= {"anchor_value": anchor[0], "anchor_seq": anchor[1]}
        before, after = ("> ", "<=") if listing.descending else ("< ", ">=")
        position = f"({order}, jobs.seq)", "(:anchor_value, :anchor_seq)"
        ahead = page(f"AND {position[0]} {before} {position[1]}", backward, limit // 2)
        rows = [
            *reversed(ahead),
            *page(f"AND {position[0]} {after} {position[1]}", forward, limit - len(ahead)),
        ]
        start = (
            0
            if len(ahead) < limit // 2
            else how_many(f"AND {position[0]} {before} {position[1]}") - len(ahead)
        )
    states = count_jobs(store)
    matching = (how_many() + len(folded.hidden)) if listing.where.terms else sum(states.values())
    stand_for_sweeps = set(folded.hidden.values())
    sweeps: dict[str, str] = {
        row.id: row.labels[SWEEP_LABEL] for row, _ in rows if row.id in stand_for_sweeps
    }
    return Window(
        tuple(row for row, _ in rows),
        tuple(key for _, key in rows),
        start,
        matching - len(folded.hidden),
        matching,
        sum(states.values()),
        states,
        folds(store, condition, values, sweeps),
    )


def _folded(
    store: Store, listing: JobList, condition: str, order: str, values: Mapping[str, Any]
) -> FoldedJobs:
    """Return the jobs that are folded away."""
    if not listing.folds:
        return FoldedJobs({})
    direction = "DESC" if listing.descending else "ASC"
    whole_order = f"{order} {direction}, jobs.seq {direction}"
    return folded_jobs(store, condition, whole_order, values, listing.opened)


def _order(listing: JobList) -> tuple[str, dict[str, Any]]:
    """Return the SQL that a listing is sorted by, and the values that it names; jobs without the value come last."""
    sort = listing.sort
    if sort in SORTS:
        return SORTS[sort], {}
    order, named = (COLUMN_SORTS[sort], {}) if sort in COLUMN_SORTS else _metric_order(sort)
    last = -math.inf if listing.descending else math.inf
    return f"coalesce({order}, :absent)", {"absent": last, **named}


def _metric_order(sort: str) -> tuple[str, dict[str, Any]]:
    """Return the SQL of a metric's value, and the name that it refers to."""
    metric = read_metric(sort)
    return value_sql(metric.which, ":metric"), {"metric": metric.name.encode("utf-8", "replace").decode()}


def listed_of(store: Store, listing: JobList, job_ids: Sequence[str], *, now_us: int) -> frozenset[str]:
    """Return those of some jobs that a listing has, folded away or not."""
    teach(store.connection, store.home)
    sql = (
        "SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(:job_ids)) AND jobs.deleted_us IS NULL "
        f"AND ({listing.where.sql})"
    )
    values = {**dict(listing.where.values), "now_us": now_us, "job_ids": json.dumps(list(job_ids))}
    return frozenset(job_id for (job_id,) in store.rows(sql, values))


def jobs_between(store: Store, listing: JobList, first: str, last: str, *, now_us: int) -> tuple[JobRow, ...]:
    """Return all jobs of a listing from one job to another, both included, whichever of them comes first.

    A fold among them is all its jobs. Nothing is returned where one of the two is not in the listing.
    """
    teach(store.connection, store.home)
    order, named = _order(listing)
    condition = f"jobs.deleted_us IS NULL AND ({listing.where.sql})"
    values = {"now_us": now_us, **named, **dict(listing.where.values)}
    folded = _folded(store, listing, condition, order, values)
    stand_in = folded.hidden
    ends = {"first_id": first, "last_id": last}
    if stand_in:
        marks = "SELECT id, seq FROM jobs WHERE id IN (:first_id, :last_id)"
        seqs = dict(store.rows(marks, ends))
        ends = {name: stand_in.get(seqs.get(job_id, 0), job_id) for name, job_id in ends.items()}
    # One statement sees one state of the store: a job that moves meanwhile shifts no end.
    keys = [
        f"(SELECT {order}, jobs.seq FROM jobs WHERE jobs.id = :{name} AND {condition})"
        for name in ("first_id", "last_id")
    ]
    position, direction = f"({order}, jobs.seq)", "DESC" if listing.descending else "ASC"
    found = store.rows(
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} {folded.condition} AND "
        f"({position} BETWEEN {keys[0]} AND {keys[1]} OR {position} BETWEEN {keys[1]} AND {keys[0]}) "
        f"ORDER BY {order} {direction}, jobs.seq {direction}",
        {**values, **folded.values, **ends},
    )
    rows = [job_row(row) for row in found]
    stand_for_sweeps = set(stand_in.values())
    if sweeps := [row.labels[SWEEP_LABEL] for row in rows if row.id in stand_for_sweeps]:
        members = store.rows(
            f"SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} AND jobs.labels <> '{{}}' AND {SWEEP} IN "
            f"(SELECT value FROM json_each(:sweeps)) ORDER BY {order} {direction}, jobs.seq {direction}",
            {**values, "sweeps": json.dumps(sweeps)},
        )
        rows = _with_members(rows, [job_row(row) for row in members])
    return tuple(rows)


def _with_members(rows: Sequence[JobRow], members: Sequence[JobRow]) -> list[JobRow]:
    """Put the jobs of each sweep behind the one that stands for them."""
    by_sweep: dict[str, list[JobRow]] = {}
    for member in members:
        by_sweep.setdefault(member.labels[SWEEP_LABEL], []).append(member)
    whole: dict[str, JobRow] = {}
    for row in rows:
        for each in (row, *by_sweep.pop(row.labels.get(SWEEP_LABEL, ""), ())):
            whole.setdefault(each.id, each)
    return list(whole.values())
