"""Reads a job's metrics whole: every point of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.formats import MICROSECONDS

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import Point, SeriesRow


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one job: its points in their order."""

    name: str
    steps: tuple[float | None, ...]
    values: tuple[float, ...]
    """NaN where a point is none."""
    times: tuple[float, ...]
    """Seconds since 1970, UTC."""
    attempts: tuple[int, ...] = ()
    """The attempt that each point is of."""
    learner: int = 1
    """Whose points they are."""
    superseded: tuple[bool, ...] = ()
    """Whether a later attempt went over each point again."""

    @property
    def last(self) -> float:
        """The last value; NaN where there is none."""
        return self.values[-1] if self.values else float("nan")


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """Which points of a job are read."""

    learner: int | None = 1
    """None: of each metric those of the first learner that reported it."""
    attempt: int | None = None
    """None: all attempts'."""
    superseded: bool | None = None
    """Whether points are read that a later attempt went over again; None: those of an attempt that is asked for."""


def series(store: Store, job_id: str, query: SeriesQuery = SeriesQuery()) -> Mapping[str, Series]:
    """Return metrics by name with all their points; of several learners the first one's count."""
    from workbench.metrics import series as stored

    found: dict[str, Series] = {}
    for each in stored(store, job_id, kinds=("value",)):
        if query.learner in (None, each.learner) and each.name not in found:
            found[each.name] = _read(store, each, query)
    return found


def _read(store: Store, row: SeriesRow, query: SeriesQuery) -> Series:
    from workbench.metrics import points
    from workbench.metrics.queries import cuts_of_series

    cuts = {cut.attempt: cut for cut in cuts_of_series(store, row)}
    shows = query.attempt is not None if query.superseded is None else query.superseded
    kept: list[tuple[Point, bool]] = []
    for point in points(store, row.id):
        cut = cuts.get(point.attempt)
        gone = cut is not None and cut.holds(point.step, point.time_us)
        if query.attempt in (None, point.attempt) and (shows or not gone):
            kept.append((point, gone))
    return Series(
        row.name,
        tuple(point.step for point, _ in kept),
        tuple(math.nan if point.value is None else point.value for point, _ in kept),
        tuple(point.time_us / MICROSECONDS for point, _ in kept),
        tuple(point.attempt for point, _ in kept),
        row.learner,
        tuple(gone for _, gone in kept),
    )
