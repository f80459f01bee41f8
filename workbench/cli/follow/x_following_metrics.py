"""Metric points as they come into the store, until the job ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.services.follow.job_text import is_over

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, Point

PAGE = 2000
POLL_SECONDS = 0.1


def new_points(
    store: Store, row: JobRow, *, learner: int | None, attempt: int | None
) -> Iterator[tuple[str, Point, int]]:
    """Yield name, point and learner of all there is, then of what comes, each series in its order."""
    seen: dict[int, int] = {}
    for _ in _changes(store, row):
        yield from _unseen(store, row, seen, learner, attempt)


def _changes(store: Store, row: JobRow) -> Iterator[None]:
    """Yield at once, then whenever something may have come, and a last time when the job is over."""
    import time

    from workbench.services.follow.follower import Keeper
    from workbench.store.jobs import job

    with Keeper(store.home):
        version = -1
        while True:
            current = job(store, row.id)
            # Read before the points: what is ingested meanwhile is seen in this round, too.
            if current is None or current.deleted_us is not None or is_over(current):
                yield
                return
            if (now := store.data_version()) != version:
                version = now
                yield
            time.sleep(POLL_SECONDS)


def _unseen(
    store: Store, row: JobRow, seen: dict[int, int], learner: int | None, attempt: int | None
) -> Iterator[tuple[str, Point, int]]:
    from workbench.metrics import points, series

    for each in series(store, row.id, kinds=("value",)):
        if learner not in (None, each.learner) or seen.get(each.id, 0) == each.points:
            continue
        while page := points(store, each.id, since_seq=seen.get(each.id, 0), limit=PAGE):
            seen[each.id] = page[-1].seq
            for point in page:
                if attempt in (None, point.attempt):
                    yield each.name, point, each.learner
