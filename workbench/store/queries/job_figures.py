"""What learners of many jobs have reported last: step, loss, progress, and which of their series have a course."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workbench.store.db.database import Store
from workbench.store.queries.listed_series import IS_LOSS, LISTED_LAST, LISTED_STEP, LOSS_ORDER
from workbench.store.queries.metric_values import teach_values

_JOBS = "job_id IN (SELECT value FROM json_each(?))"


class ReportedProgress(NamedTuple):
    """The furthest progress of a job; the fields are those of ``ProgressRow``, which is dearer to import."""

    learner: int
    attempt: int
    time_us: int
    fraction: float | None
    text: str


class SeriesCourse(NamedTuple):
    """A series with several points."""

    id: int
    revision: int
    points: int


def last_losses(store: Store, job_ids: Sequence[str]) -> dict[str, float | None]:
    """Return the last value of the loss that stands for each job which has one; None: it is NaN."""
    teach_values(store.connection)
    sql = f"SELECT job_id, {LISTED_LAST} FROM series WHERE {_JOBS} AND {IS_LOSS} ORDER BY {LOSS_ORDER}"
    found: dict[str, float | None] = {}
    for job_id, value in store.rows(sql, (_listed(job_ids),)):
        found.setdefault(job_id, value)
    return found


def last_steps(store: Store, job_ids: Sequence[str]) -> dict[str, int | None]:
    """Return the greatest last step of each job that has reported metrics."""
    teach_values(store.connection)
    sql = f"SELECT job_id, max({LISTED_STEP}) FROM series WHERE {_JOBS} AND kind = 'value' GROUP BY job_id"
    return dict(store.rows(sql, (_listed(job_ids),)))


def furthest_progress(store: Store, job_ids: Sequence[str]) -> dict[str, ReportedProgress]:
    """Return the furthest progress of each job that has reported some."""
    sql = f"SELECT job_id, learner, attempt, time_us, max(fraction), text FROM progress WHERE {_JOBS} GROUP BY job_id"
    return {job_id: ReportedProgress(*told) for job_id, *told in store.rows(sql, (_listed(job_ids),))}


def series_courses(store: Store, job_ids: Sequence[str]) -> dict[str, Mapping[str, SeriesCourse]]:
    """Return by job and name the metrics that have a course to show; of several learners the first one's."""
    sql = (
        f"SELECT job_id, name, id, revision, points FROM series WHERE {_JOBS} AND kind = 'value' AND points > 1 "
        "ORDER BY learner DESC"
    )
    found: dict[str, dict[str, SeriesCourse]] = {}
    for job_id, name, *facts in store.rows(sql, (_listed(job_ids),)):
        found.setdefault(job_id, {})[name] = SeriesCourse(*facts)
    return dict(found)


def _listed(job_ids: Sequence[str]) -> str:
    return json.dumps(list(job_ids))
