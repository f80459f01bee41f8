"""Pages of the list of jobs, sorted by any column, by key, so that 10,000 jobs are never loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from workbench.job import State
from workbench.spec import SWEEP_LABEL
from workbench.store.db.database import Store
from workbench.store.db.rows import JOB_COLUMNS, JobRow, job_row
from workbench.store.queries import job_fields
from workbench.store.queries.job_fields import LABEL, PARAM, find_field, sort_order
from workbench.store.queries.jobs import count_jobs
from workbench.store.queries.metric_values import (
    KINDS,
    MetricName,
    learner_sql,
    read_metric,
    value_sql,
)
from workbench.store.queries.sweeps import SWEEP, Fold, FoldedJobs, folded_jobs, folds
from workbench.store.queries.where import JobFilter, teach
from workbench.values import dataclass

VALUES_KNOWN: Final = 200
"""So many values of a field are proposed."""


def is_metric(sort: str) -> bool:
    """Say whether a list that is sorted by this is sorted by a metric."""
    return find_field(sort) is None and not sort.startswith((PARAM, LABEL))


Key = tuple[str | int | float | bytes, int]
"""Where a row stands in an order: the value that it is sorted by, and its ``seq``."""

_LAST: Final[Mapping[bool, float | bytes]] = {False: b"", True: -math.inf}
"""What stands for the value of a job without one, in a rising and in a falling order: behind all numbers and texts."""
_LEAST: Final = "-1.7976931348623157e308"
"""What stands for minus infinity in a falling order, so that jobs without a value come behind it."""


@dataclass(frozen=True, slots=True)
class JobList:
    """Which jobs are listed, and in which order."""

    where: JobFilter = field(default_factory=JobFilter)
    sort: str = "submitted"
    """The name of a :class:`JobField`, ``params.NAME``, ``label.NAME``, else a metric or ``min(metric)``.

    A metric that is called as one of these stands in quotation marks.
    """
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
        sort: As in :class:`JobList`; jobs that have none of it come last.
        descending: Whether the greatest comes first.
        now_us: Now, for ages.
        limit: At most so many.
    """
    teach(store.connection, store.home)
    sort, descending = sort_order(sort, descending=descending)
    order, named_by_order = _value(sort)
    named = {**values, **dict(where.values), "now_us": now_us, **named_by_order}
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
    elements = {"tags": "value", "labels": "key || '=' || value"}
    found = {
        each.name: f"{elements[each.kind]} AS found FROM jobs, json_each({each.sql})"
        if each.kind in elements
        else f"{each.sql} AS found FROM jobs"
        for each in job_fields.JOB_FIELDS
        if each.is_proposed
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
    listing = _resolved(listing)
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


def _resolved(listing: JobList) -> JobList:
    """Return a listing with the order that a name stands for."""
    sort, descending = sort_order(listing.sort, descending=listing.descending)
    return replace(listing, sort=sort, descending=descending)


def _order(listing: JobList) -> tuple[str, dict[str, Any]]:
    """Return the SQL that a listing is sorted by, and the values that it names; jobs without the value come last."""
    order, named = _value(listing.sort)
    found = find_field(listing.sort)
    if found is not None and found.all_have_it:
        return order, named
    if listing.descending:
        order = f"max({order}, {_LEAST})"
    return f"coalesce({order}, :absent)", {"absent": _LAST[listing.descending], **named}


def _value(sort: str) -> tuple[str, dict[str, Any]]:
    """Return the SQL of what jobs are sorted by, NULL for a job without it, and the values that it names."""
    if (found := find_field(sort)) is not None:
        return found.order_sql, {}
    if sort.startswith(PARAM):
        return "param_value(jobs.id, jobs.attempt, :sorted_by)", {"sorted_by": _bound(sort[len(PARAM) :])}
    if sort.startswith(LABEL):
        label = (
            "(SELECT lower(value) FROM json_each(jobs.labels) WHERE lower(key) = lower(:sorted_by) "
            "ORDER BY key = :sorted_by DESC LIMIT 1)"
        )
        return label, {"sorted_by": _bound(sort[len(LABEL) :])}
    metric = read_metric(sort)
    return value_sql(metric.which, ":sorted_by"), {"sorted_by": _bound(metric.name)}


def _bound(name: str) -> str:
    """Return a name as SQLite takes it: an argument of a command may hold bytes that are no text."""
    return name.encode("utf-8", "replace").decode()


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
    listing = _resolved(listing)
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
