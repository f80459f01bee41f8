"""What a sweep has come to: the job whose main metric has the best last value, else between which values they end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final

from workbench.metric_names import best_value, main_metrics, smaller_is_better
from workbench.metrics.short_names import shared_folder
from workbench.store.db.database import Store
from workbench.store.queries.metric_values import live_sql, teach_values
from workbench.store.queries.params import job_params
from workbench.values import dataclass

_PARAMS_OF: Final = 50
"""Of so many jobs of a sweep the params are read at most to find out which differ."""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The last values of a sweep's main metric."""

    metric: str
    """Its name without what those of all its metrics begin with."""
    least: float
    most: float
    best: float | None
    """None where the metric's name does not say which of two values is better."""
    params: tuple[tuple[str, str], ...]
    """Those of the best job that differ within the sweep."""


def sweep_outcome(store: Store, job_ids: Sequence[str]) -> SweepOutcome | None:
    """Return what the jobs of a sweep have come to; None where none has reported a number.

    A metric that tells good from bad comes before one that does not.
    """
    teach_values(store.connection)
    ids = json.dumps(list(job_ids))
    inside = "job_id IN (SELECT value FROM json_each(?)) AND kind = 'value'"
    names = [name for (name,) in store.rows(f"SELECT DISTINCT name FROM series WHERE {inside}", (ids,))]
    telling = [name for name in names if smaller_is_better(name) is not None]
    for metric in main_metrics(telling, len(telling)) + main_metrics(names, len(names)):
        rows = store.rows(
            f"SELECT job_id, {live_sql('last')} FROM series WHERE {inside} AND name = ? ORDER BY learner DESC",
            (ids, metric),
        )
        values = {job_id: value for job_id, value in rows if value is not None and math.isfinite(value)}
        if not values:
            continue
        best = best_value(metric, values.values())
        job_id = next((each for each, value in values.items() if value == best), None)
        params = _differing(store, job_id, job_ids) if job_id else ()
        return SweepOutcome(
            metric.removeprefix(shared_folder(names)),
            min(values.values()),
            max(values.values()),
            best,
            params,
        )
    return None


def _differing(store: Store, job_id: str, job_ids: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the params of a job in which the jobs of its sweep differ, as they are in their last attempts."""
    sql = "SELECT id, attempt FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
    step = max(1, len(job_ids) // _PARAMS_OF)
    attempts = dict(store.rows(sql, (json.dumps([job_id, *job_ids[::step]]),)))
    own, *others = (
        job_params(store.home, each, attempts.get(each, 1)) for each in (job_id, *job_ids[::step])
    )
    return tuple(
        (name, str(value))
        for name, value in own.items()
        if not isinstance(value, Mapping) and any(other.get(name) != value for other in others)
    )
