"""What is read for the rows in view alone: how main metrics of running jobs went, and what each fold has come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from screens.jobs.columns import TREND_CELLS
from workbench.values import dataclass

# What reads charts and compares jobs is imported when the first row needs it: the list is to be there at once.
if TYPE_CHECKING:
    from workbench.services.inspect.sweep_best import SweepOutcome
    from workbench.store.db.database import Store
    from workbench.store.queries.job_figures import SeriesCourse

_GREW_BY: Final = 1.03
"""A curve is read again once it has so many times its points, or after :data:`_STALE_SECONDS`."""
_STALE_SECONDS: Final = 10.0
_KEPT_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class InView:
    """Rows in view of which more is shown than a list of jobs holds."""

    running: tuple[str, ...] = ()
    """Ids of jobs."""
    folds: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Sweeps and the ids of their jobs."""


@dataclass(frozen=True, slots=True)
class RowDetails:
    """What is known of rows in view."""

    trends: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """By job: from 0 to 1, the oldest first."""
    outcomes: Mapping[str, SweepOutcome] = field(default_factory=dict)
    """By sweep."""


@dataclass(frozen=True, slots=True)
class _Curve:
    series: int
    revision: int
    points: int
    read_at: float
    values: tuple[float | None, ...]


class RowDetailsReader:
    """Reads them in the reader's thread, and keeps what has hardly changed."""

    def __init__(self) -> None:
        self._curves: dict[str, _Curve] = {}

    def query(self, rows: InView) -> Callable[[Store], RowDetails]:
        """Return the query for some rows."""

        def read(store: Store) -> RowDetails:
            from workbench.services.inspect.sweep_best import sweep_outcome

            found = {sweep: sweep_outcome(store, job_ids) for sweep, job_ids in rows.folds}
            trends = self._trends(store, rows.running)
            return RowDetails(
                trends, {sweep: outcome for sweep, outcome in found.items() if outcome is not None}
            )

        return read

    def _trends(self, store: Store, job_ids: Sequence[str]) -> dict[str, tuple[float | None, ...]]:
        from workbench.store.queries.job_figures import series_courses

        found = series_courses(store, job_ids)
        if len(self._curves) > _KEPT_MAX:
            self._curves.clear()
        return {job_id: self._trend(store, job_id, by_name) for job_id, by_name in found.items()}

    def _trend(
        self, store: Store, job_id: str, by_name: Mapping[str, SeriesCourse]
    ) -> tuple[float | None, ...]:
        from workbench.metric_names import main_metrics
        from workbench.metrics.chart_axis import NUMBER, chart_points
        from workbench.metrics.queries import series

        name = main_metrics(by_name, 1)[0]
        series_id, revision, points = by_name[name]
        kept = self._curves.get(job_id)
        if kept is not None and kept.series == series_id:
            fresh = time.monotonic() - kept.read_at < _STALE_SECONDS
            if kept.revision == revision or (fresh and points < kept.points * _GREW_BY):
                return kept.values
        row = next((row for row in series(store, job_id, kinds=("value",)) if row.id == series_id), None)
        buckets = [] if row is None else chart_points(store, row, NUMBER, width=TREND_CELLS) or []
        values = _shares([bucket.last for bucket in buckets])
        self._curves[job_id] = _Curve(series_id, revision, points, time.monotonic(), values)
        return values


def _shares(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Lay values out between the least and the greatest of them."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = high - low
    return tuple(None if value is None else (value - low) / span if span else 0.5 for value in values)
