"""Sweeps: as one line of a list, which jobs such a line stands for and how they are; and how one compares with others.

The jobs of a sweep have the same label ``sweep``. In a list that folds, the first of them in its order stands for all
that the list would show, unless the sweep is opened or only one of its jobs is in the list.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from workbench.job import State
from workbench.spec import SWEEP_LABEL
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.metric_values import find_series
from workbench.store.queries.superseded import NOTHING, condition, series_cuts
from workbench.values import dataclass

SWEEP: Final = f"json_extract(jobs.labels, '$.{SWEEP_LABEL}')"
"""The SQL of a job's sweep; NULL where it is in none."""
_IN_SWEEP: Final = f"jobs.labels <> '{{}}' AND {SWEEP} <> ''"


@dataclass(frozen=True, slots=True)
class Fold:
    """One line for several jobs of a sweep."""

    sweep: str
    name: str
    """What the names of its jobs begin with."""
    job_ids: tuple[str, ...]
    states: tuple[tuple[State, int], ...]
    """How many jobs are in each state, without those of which there are none."""
    backend: str
    """Empty where its jobs are on several."""


@dataclass(frozen=True, slots=True)
class FoldedJobs:
    """The jobs of a list that stand behind another one of their sweep."""

    hidden: Mapping[int, str]
    """The id of the job that stands for each, by ``seq``."""

    @property
    def condition(self) -> str:
        """The SQL that leaves them out; it names ``:hidden``."""
        return "AND jobs.seq NOT IN (SELECT value FROM json_each(:hidden))" if self.hidden else ""

    @property
    def values(self) -> dict[str, str]:
        """What the condition names."""
        return {"hidden": json.dumps(list(self.hidden))} if self.hidden else {}


def folded_jobs(
    store: Store, condition: str, order: str, values: Mapping[str, Any], opened: Collection[str]
) -> FoldedJobs:
    """Find the jobs that are left out of a list which folds.

    Args:
        store: The store.
        condition: Which jobs the list has, in SQL.
        order: What it is sorted by, in SQL, with the direction.
        values: What both name.
        opened: Sweeps that are not folded.
    """
    sql = (
        f"SELECT seq, first FROM (SELECT jobs.seq AS seq, row_number() OVER one AS place, "
        f"first_value(jobs.id) OVER one AS first FROM jobs WHERE {condition} AND {_IN_SWEEP} "
        f"AND {SWEEP} NOT IN (SELECT value FROM json_each(:opened)) "
        f"WINDOW one AS (PARTITION BY {SWEEP} ORDER BY {order})) WHERE place > 1"
    )
    if _has_none(store):
        return FoldedJobs({})
    named = {**values, "opened": json.dumps(sorted(opened))}
    return FoldedJobs(dict(store.rows(sql, named)))


_without: dict[str, int] = {}
"""Homes without a sweep, and the revision of their jobs as of which that was found out: it takes a look at each job."""


OTHERS_LEAST: Final = 3
"""So many others have to have come as far as a job that is compared with them."""


@dataclass(frozen=True, slots=True)
class Median:
    """A job's best value beside those of the others of its sweep, each among its first so many values.

    Superseded values count nowhere: those of a resumed job are those of its attempts one after the other.
    """

    own: float
    others: float
    """The median of their best values."""
    jobs: int
    values: int


def median_of_sweep(
    store: Store, row: JobRow, metric: str, *, smaller_is_better: bool, after: int | str
) -> Median | None:
    """Compare a job with the others of its sweep that have as many values of a metric.

    Args:
        store: of the home.
        row: the job.
        metric: its name, whole or its last part.
        smaller_is_better: the direction.
        after: so many values are passed over; a share such as ``20%`` is one of what a job that completed has.

    Returns:
        None where it is in no sweep, has too few values, or too few others have come as far.
    """
    sweep = row.labels.get(SWEEP_LABEL)
    own = find_series(store, row.id, metric)
    if not sweep or own is None:
        return None
    sql = f"SELECT id, state FROM jobs WHERE jobs.labels <> '{{}}' AND {SWEEP} = ? AND id <> ?"
    if row.parent:
        sql += " AND parent = ?"
    others = store.rows(sql, (sweep, row.id, row.parent) if row.parent else (sweep, row.id))
    series = {str(job_id): find_series(store, str(job_id), metric) for job_id, _ in others}
    held = {each: _live_of(store, each) for each in (own, *series.values()) if each is not None}
    if isinstance(after, str):
        completed = [series[str(job_id)] for job_id, state in others if state == State.COMPLETED]
        ends = [held[each].points for each in completed if each is not None]
        if not any(ends):
            return None
        after = int(max(ends) * float(after.rstrip("%")) / 100)
    values = held[own].points
    if values <= after:
        return None
    best = _best_of_first(store, held[own], values, smaller_is_better=smaller_is_better)
    theirs = [
        found
        for each in series.values()
        if each is not None and held[each].points >= values
        if (found := _best_of_first(store, held[each], values, smaller_is_better=smaller_is_better))
        is not None
    ]
    if len(theirs) < OTHERS_LEAST:
        return None
    worst = float("inf") if smaller_is_better else float("-inf")
    return Median(worst if best is None else best, median(theirs), len(theirs), values)


class _Held(NamedTuple):
    """The values of a series that count."""

    series: int
    points: int
    hidden: str
    """The condition on ``points`` that one does not."""


def _live_of(store: Store, series: int) -> _Held:
    found = store.row("SELECT points, job_id, learner FROM series WHERE id = ?", (series,))
    if found is None:
        return _Held(series, 0, NOTHING)
    points, job_id, learner = found
    hidden = condition(series_cuts(store.connection, job_id, learner, series))
    if hidden != NOTHING:
        sql = f"SELECT count(*) FROM points WHERE series = ? AND NOT ({hidden})"
        points = store.rows(sql, (series,))[0][0]
    return _Held(series, int(points), hidden)


def _best_of_first(store: Store, held: _Held, count: int, *, smaller_is_better: bool) -> float | None:
    """Return the best of a series' first values; None where none of them is a number."""
    best = "min" if smaller_is_better else "max"
    sql = (
        f"SELECT {best}(value) FROM (SELECT value FROM points WHERE series = ? AND NOT ({held.hidden}) "
        "ORDER BY seq LIMIT ?)"
    )
    found = store.row(sql, (held.series, count))
    return None if found is None or found[0] is None else float(found[0])


def _has_none(store: Store) -> bool:
    """Say whether a home has no sweep."""
    home = str(store.home.path)
    revision = int(store.rows("SELECT value FROM counters WHERE name = 'jobs'")[0][0])
    if _without.get(home) == revision:
        return True
    if store.row(f"SELECT 1 FROM jobs WHERE {_IN_SWEEP} LIMIT 1") is not None:
        _without.pop(home, None)
        return False
    _without[home] = revision
    return True


def folds(
    store: Store, condition: str, values: Mapping[str, Any], sweeps: Mapping[str, str]
) -> dict[str, Fold]:
    """Return the fold of each job that stands for a sweep: ``sweeps`` has the sweep by the job."""
    if not sweeps:
        return {}
    found = store.rows(
        f"SELECT {SWEEP}, state, count(*), min(name), max(name), min(backend), max(backend), "
        f"json_group_array(id) FROM jobs WHERE {condition} AND {_IN_SWEEP} "
        f"AND {SWEEP} IN (SELECT value FROM json_each(:sweeps)) GROUP BY 1, 2",
        {**values, "sweeps": json.dumps(sorted(set(sweeps.values())))},
    )
    by_sweep: dict[str, list[Sequence[Any]]] = {}
    for sweep, *row in found:
        by_sweep.setdefault(sweep, []).append(row)
    made = {sweep: _fold(sweep, rows) for sweep, rows in by_sweep.items()}
    return {job: made[sweep] for job, sweep in sweeps.items() if sweep in made}


def _fold(sweep: str, rows: Sequence[Sequence[Any]]) -> Fold:
    states = {State(row[0]): int(row[1]) for row in rows}
    first, last = min(row[2] for row in rows), max(row[3] for row in rows)
    # What the least and the greatest of some texts begin with, all of them begin with.
    same = next(
        (i for i, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
    )
    backends = {each for row in rows for each in row[4:6]}
    return Fold(
        sweep,
        first if first == last else first[:same].rstrip("-_./ ") or first,
        tuple(job_id for row in rows for job_id in json.loads(row[6])),
        tuple((state, states[state]) for state in State if state in states),
        backends.pop() if len(backends) == 1 else "",
    )
