"""Reads a job's metrics whole: every point of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from workbench.formats import MICROSECONDS
from workbench.services.inspect.data_frame import data_frame

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import Point, SeriesRow

_Default = TypeVar("_Default")


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
    axis: str = "step"
    """The x of these points in a chart: ``step``, ``epoch`` (reported with them) or ``number`` (their order)."""
    x: tuple[float, ...] = ()
    """Each point's x."""

    @property
    def last(self) -> float:
        """The last value; NaN where there is none."""
        return self.values[-1] if self.values else float("nan")

    @property
    def min(self) -> float:
        """The least finite value; NaN where there is none."""
        return min(filter(math.isfinite, self.values), default=math.nan)

    @property
    def max(self) -> float:
        """The greatest finite value; NaN where there is none."""
        return max(filter(math.isfinite, self.values), default=math.nan)

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each point: ``metric``, ``step``, ``value``, ``time``, ``attempt``, ``learner``."""
        points = zip(self.steps, self.values, self.times, self.attempts, strict=True)
        return [
            {
                "metric": self.name,
                "step": step,
                "value": value,
                "time": time,
                "attempt": attempt,
                "learner": self.learner,
            }
            for step, value, time, attempt in points
        ]

    def frame(self) -> Any:
        """Return :meth:`rows` as a ``pandas.DataFrame``.

        Raises:
            ConfigError: pandas is not installed.
        """
        return data_frame(self.rows())


class JobMetrics(dict[str, Series]):
    """The metrics of a job by name.

    A name is whole, or its last part, in any case: ``metrics["loss"]`` is ``metrics["train/loss"]``. Of several
    that fit, the one with the shortest name is meant, as in filters.
    """

    def __missing__(self, name: str) -> Series:
        found = self._whole(name)
        if found is None:
            from workbench.manifest.yaml.faults import nearest

            by_part = {part: each for each in self for part in (each.rpartition("/")[2], each)}
            close = nearest(name, by_part)
            there = f"did you mean {close}?" if close else f"there are {', '.join(self) or 'none'}"
            raise KeyError(f"there is no metric {name!r}; {there}")
        return self[found]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._whole(name) is not None

    @overload
    def get(self, key: str, default: None = None, /) -> Series | None: ...
    @overload
    def get(self, key: str, default: Series, /) -> Series: ...
    @overload
    def get(self, key: str, default: _Default, /) -> Series | _Default: ...
    def get(self, key: str, default: Any = None, /) -> Any:
        """Return a metric by its name or the last part of it, else the default."""
        found = self._whole(key)
        return default if found is None else self[found]

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each point of each metric; see :meth:`Series.rows`."""
        return [row for each in self.values() for row in each.rows()]

    def frame(self) -> Any:
        """Return :meth:`rows` as a ``pandas.DataFrame``.

        Raises:
            ConfigError: pandas is not installed.
        """
        return data_frame(self.rows())

    def _whole(self, name: str) -> str | None:
        if dict.__contains__(self, name):
            return name
        folded = name.lower()
        fitting = [each for each in self if each.lower() == folded or each.lower().endswith(f"/{folded}")]
        return min(fitting, key=lambda each: (len(each), each), default=None)


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """Which points of a job are read."""

    learner: int | None = 1
    """None: of each metric those of the first learner that reported it."""
    attempt: int | None = None
    """None: all attempts'."""
    superseded: bool | None = None
    """Whether points are read that a later attempt went over again; None: those of an attempt that is asked for."""

    @property
    def shows(self) -> bool:
        """Whether such points are read."""
        return self.attempt is not None if self.superseded is None else self.superseded


def series(store: Store, job_id: str, query: SeriesQuery = SeriesQuery()) -> JobMetrics:
    """Return metrics by name with all their points; of several learners the first one's count."""
    from workbench.metrics import series as stored

    found: dict[str, Series] = {}
    for each in stored(store, job_id, kinds=("value",)):
        if (each.points or query.shows) and query.learner in (None, each.learner) and each.name not in found:
            found[each.name] = _read(store, each, query)
    return JobMetrics(found)


def _read(store: Store, row: SeriesRow, query: SeriesQuery) -> Series:
    from workbench.metrics import points
    from workbench.metrics.chart_axis import points_axis
    from workbench.metrics.queries import cuts_of_series

    cuts = {cut.attempt: cut for cut in cuts_of_series(store, row)}
    kept: list[tuple[Point, bool]] = []
    for point in points(store, row.id):
        cut = cuts.get(point.attempt)
        gone = cut is not None and cut.holds(point.seq, point.time_us)
        if query.attempt in (None, point.attempt) and (query.shows or not gone):
            kept.append((point, gone))
    axis, x = points_axis(store, row, [point for point, _ in kept])
    return Series(
        row.name,
        tuple(point.step for point, _ in kept),
        tuple(math.nan if point.value is None else point.value for point, _ in kept),
        tuple(point.time_us / MICROSECONDS for point, _ in kept),
        tuple(point.attempt for point, _ in kept),
        row.learner,
        tuple(gone for _, gone in kept),
        axis,
        x,
    )
