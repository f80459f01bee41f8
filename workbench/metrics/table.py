"""Metrics as a table, row by row: what was reported for one step of one learner stands in one row.

Rows are merged from all series as they are read, so a table of any length needs little memory.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from workbench.metrics.queries import points, series
from workbench.store.db.database import Store
from workbench.store.db.rows import Point, SeriesRow

_PAGE: Final = 2000
"""So many points of each series are held at once."""

_Key = tuple[int, int, int, int]
"""learner, attempt, then step, or time behind all steps for points without one."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """What one learner reported for one step."""

    learner: int
    attempt: int
    step: int | None
    time_us: int
    """Of the earliest of its values."""
    values: Mapping[str, float]
    """By name; NaN is one, a metric that was not reported for this step is left out."""


@dataclass(frozen=True, slots=True)
class MetricTable:
    """A table that is read once, from its first row to its last."""

    columns: tuple[str, ...]
    rows: Iterator[MetricRow]


def table(
    store: Store, job_id: str, *, learner: int | None = None, attempt: int | None = None
) -> MetricTable:
    """Return a job's metrics by step, of all learners and attempts or of one."""
    found = series(store, job_id, kinds=("value", "etime"))
    selected = [row for row in found if learner in (None, row.learner)]
    columns = tuple(dict.fromkeys(row.name for row in selected))
    cells = heapq.merge(*(_cells(store, row) for row in selected), key=lambda cell: cell[0])
    rows = _grouped(cells)
    return MetricTable(columns, (row for row in rows if attempt in (None, row.attempt)))


def _cells(store: Store, row: SeriesRow) -> Iterator[tuple[_Key, str, Point]]:
    last_seq = 0
    while page := points(store, row.id, since_seq=last_seq, limit=_PAGE):
        for point in page:
            yield _key(row.learner, point), row.name, point
        last_seq = page[-1].seq


def _key(learner: int, point: Point) -> _Key:
    if point.step is None:
        return (learner, point.attempt, 1, point.time_us)
    return (learner, point.attempt, 0, point.step)


def _grouped(cells: Iterator[tuple[_Key, str, Point]]) -> Iterator[MetricRow]:
    group: list[tuple[str, Point]] = []
    key: _Key | None = None
    names: set[str] = set()
    for cell_key, name, point in cells:
        # A metric that was reported twice for one step stands in two rows.
        if key is not None and (cell_key != key or name in names):
            yield _row(key, group)
            group, names = [], set()
        key = cell_key
        group.append((name, point))
        names.add(name)
    if key is not None:
        yield _row(key, group)


def _row(key: _Key, group: list[tuple[str, Point]]) -> MetricRow:
    return MetricRow(
        learner=key[0],
        attempt=key[1],
        step=group[0][1].step,
        time_us=min(point.time_us for _, point in group),
        values={name: math.nan if point.value is None else point.value for name, point in group},
    )
