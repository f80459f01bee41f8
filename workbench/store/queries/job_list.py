"""Pages of the list of jobs, sorted by any column, by key, so that 10,000 jobs are never loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from workbench.job import State
from workbench.store.db.database import Store
from workbench.store.db.rows import JOB_COLUMNS, JobRow, job_row
from workbench.store.queries.jobs import count_jobs
from workbench.store.queries.metric_values import MetricName, learner_sql, read_metric, value_sql
from workbench.store.queries.where import JobFilter, teach

SORTS: Final[Mapping[str, str]] = {
    "submitted": "jobs.seq",
    "state": "jobs.state",
    "name": "lower(jobs.name)",
    "place": "jobs.backend",
    "owner": "jobs.owner",
    "gpus": "jobs.gpus",
    "changed": "jobs.changed_us",
    "time": "coalesce(jobs.ended_us, :now_us) - coalesce(jobs.started_us, coalesce(jobs.ended_us, :now_us))",
    "exit": "coalesce(jobs.exit_code, -1)",
}
"""Columns that jobs can be sorted by, and what they are compared by."""

Key = tuple[str | int | float, int]
"""Where a row stands in an order: the value that it is sorted by, and its ``seq``."""


@dataclass(frozen=True, slots=True)
class JobList:
    """Which jobs are listed, and in which order."""

    where: JobFilter = field(default_factory=JobFilter)
    sort: str = "submitted"
    """A key of :data:`SORTS`."""
    descending: bool = True


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
    jobs: int
    """All jobs there are, filtered or not."""
    states: Mapping[State, int]
    """How many jobs of the whole store are in each state."""


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
    teach(store.connection)
    metric = read_metric(sort)
    order = SORTS.get(sort) or value_sql(metric.which, ":metric")
    named = {
        **values,
        **dict(where.values),
        "now_us": now_us,
        "metric": metric.name.encode("utf-8", "replace").decode(),
    }
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
    teach(store.connection)
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
    """Return the name of every metric that any job has."""
    sql = "SELECT DISTINCT name FROM series WHERE kind <> 'usage' ORDER BY name"
    return [name for (name,) in store.rows(sql)]


def window(
    store: Store,
    listing: JobList,
    *,
    now_us: int,
    anchor: Key | None = None,
    offset: int | None = None,
    limit: int = 200,
) -> Window:
    """Return the rows around an anchor, half of them before it; without one the first, or from an offset.

    The anchor need not be there any more: it is a position in the order, not a row.
    """
    teach(store.connection)
    order = SORTS[listing.sort]
    values: dict[str, str | int | float] = {"now_us": now_us, **dict(listing.where.values)}
    condition = f"jobs.deleted_us IS NULL AND ({listing.where.sql})"

    def page(more: str, direction: str, count: int, skip: int = 0) -> list[tuple[JobRow, Key]]:
        found = store.rows(
            f"SELECT {JOB_COLUMNS}, {order} FROM jobs WHERE {condition} {more} "
            f"ORDER BY {order} {direction}, jobs.seq {direction} LIMIT {count} OFFSET {skip}",
            values,
        )
        return [(job_row(row[:-1], store.looked_us), (row[-1], row[1])) for row in found]

    def how_many(more: str = "") -> int:
        return int(store.rows(f"SELECT count(*) FROM jobs WHERE {condition} {more}", values)[0][0])

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
    total = how_many() if listing.where.terms else sum(states.values())
    return Window(
        tuple(row for row, _ in rows),
        tuple(key for _, key in rows),
        start,
        total,
        sum(states.values()),
        states,
    )


def jobs_between(store: Store, listing: JobList, first: str, last: str, *, now_us: int) -> tuple[JobRow, ...]:
    """Return all jobs of a listing from one job to another, both included, whichever of them comes first.

    Nothing is returned where one of the two is not in the listing.
    """
    teach(store.connection)
    order = SORTS[listing.sort]
    condition = f"jobs.deleted_us IS NULL AND ({listing.where.sql})"
    # One statement sees one state of the store: a job that moves meanwhile shifts no end.
    ends = [
        f"(SELECT {order}, jobs.seq FROM jobs WHERE jobs.id = :{name} AND {condition})"
        for name in ("first_id", "last_id")
    ]
    position, direction = f"({order}, jobs.seq)", "DESC" if listing.descending else "ASC"
    found = store.rows(
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} AND "
        f"({position} BETWEEN {ends[0]} AND {ends[1]} OR {position} BETWEEN {ends[1]} AND {ends[0]}) "
        f"ORDER BY {order} {direction}, jobs.seq {direction}",
        {**dict(listing.where.values), "now_us": now_us, "first_id": first, "last_id": last},
    )
    return tuple(job_row(row) for row in found)
