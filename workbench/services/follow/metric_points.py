"""Yields a job's metric points as they come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workbench.services.follow.keeper import Keeper
from workbench.store.db.rows import is_over

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, Point

PAGE: Final = 2000
POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric."""

    name: str
    learner: int
    point: Point


def follow_points(
    store: Store, row: JobRow, *, learner: int | None = None, attempt: int | None = None
) -> Iterator[MetricPoint]:
    """Yield all points there are, then those that come until the job is over, each series in its order.

    ``learner`` and ``attempt`` leave out all others.
    """
    yielded: dict[int, int] = {}
    for _ in _changes(store, row):
        yield from _new_points(store, row, yielded, learner, attempt)


def _changes(store: Store, row: JobRow) -> Iterator[None]:
    """Yield at once, then whenever something may have come, and a last time when the job is over."""
    from workbench.store.jobs import job

    with Keeper(store.home):
        version = -1
        while True:
            current = job(store, row.id)
            # Read before the points: what is ingested meanwhile is part of this round, too.
            if current is None or current.deleted_us is not None or is_over(current):
                yield
                return
            if (now := store.data_version()) != version:
                version = now
                yield
            time.sleep(POLL_SECONDS)


def _new_points(
    store: Store, row: JobRow, yielded: dict[int, int], learner: int | None, attempt: int | None
) -> Iterator[MetricPoint]:
    """Yield what is not in ``yielded``, the last number of each series by its id, which is brought up to date."""
    from workbench.metrics import points, series

    for each in series(store, row.id, kinds=("value",)):
        if learner not in (None, each.learner) or yielded.get(each.id, 0) == each.points:
            continue
        while page := points(store, each.id, since_seq=yielded.get(each.id, 0), limit=PAGE):
            yielded[each.id] = page[-1].seq
            for point in page:
                if attempt in (None, point.attempt):
                    yield MetricPoint(each.name, each.learner, point)
