"""Yields a job's metric points as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from workbench.services.follow.keeper import rounds
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, Point

PAGE: Final = 2000


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric."""

    name: str
    learner: int
    point: Point
    is_superseded: bool = False
    """Whether a later attempt went over it again."""


def follow_points(
    store: Store,
    row: JobRow,
    *,
    learner: int | None = None,
    attempt: int | None = None,
    superseded: bool = False,
) -> Iterator[MetricPoint]:
    """Yield all points there are, then those that come until the job is over, each series in its order.

    ``learner`` and ``attempt`` leave out all others. Of points that a later attempt went over again, those of an
    attempt that is asked for are yielded, and with ``superseded`` all.
    """
    yielded: dict[int, int] = {}
    version = -1
    for is_last in rounds(store, row):
        if not is_last:
            # Read before the points: what is ingested meanwhile is part of this round, too.
            if (now := store.data_version()) == version:
                continue
            version = now
        for each in _new_points(store, row, yielded, learner):
            if attempt in (None, each.point.attempt) and (
                superseded or attempt is not None or not each.is_superseded
            ):
                yield each


def _new_points(
    store: Store, row: JobRow, yielded: dict[int, int], learner: int | None
) -> Iterator[MetricPoint]:
    """Yield what is not in ``yielded``, the last number of each series by its id, which is brought up to date."""
    from workbench.metrics import points, series
    from workbench.metrics.queries import cuts_of_series

    for each in series(store, row.id, kinds=("value",)):
        if learner not in (None, each.learner) or yielded.get(each.id, 0) == each.points + each.superseded:
            continue
        cuts = {cut.attempt: cut for cut in cuts_of_series(store, each)}
        while page := points(store, each.id, since_seq=yielded.get(each.id, 0), limit=PAGE):
            yielded[each.id] = page[-1].seq
            for point in page:
                cut = cuts.get(point.attempt)
                gone = cut is not None and cut.holds(point.seq, point.time_us)
                yield MetricPoint(each.name, each.learner, point, gone)
