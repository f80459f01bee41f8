"""Reads a job's metrics whole: every point of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.formats import MICROSECONDS

if TYPE_CHECKING:
    from workbench.store.db.database import Store


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one job: its points in their order."""

    name: str
    steps: tuple[int | None, ...]
    values: tuple[float, ...]
    """NaN where a point is none."""
    times: tuple[float, ...]
    """Seconds since 1970, UTC."""

    @property
    def last(self) -> float:
        """The last value; NaN where there is none."""
        return self.values[-1] if self.values else float("nan")


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """Which points of a job are read."""

    learner: int | None = 1
    """None: all learners'."""
    attempt: int | None = None
    """None: all attempts'."""


def series(store: Store, job_id: str, query: SeriesQuery = SeriesQuery()) -> Mapping[str, Series]:
    """Return metrics by name with all their points; of several learners the first one's counts."""
    from workbench.metrics import points
    from workbench.metrics import series as stored

    found: dict[str, Series] = {}
    for each in stored(store, job_id, kinds=("value",)):
        if query.learner in (None, each.learner) and each.name not in found:
            rows = [row for row in points(store, each.id) if query.attempt in (None, row.attempt)]
            found[each.name] = Series(
                each.name,
                tuple(point.step for point in rows),
                tuple(math.nan if point.value is None else point.value for point in rows),
                tuple(point.time_us / MICROSECONDS for point in rows),
            )
    return found
