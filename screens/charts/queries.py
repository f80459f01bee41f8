"""Reads charts from the store's roll-ups: about two points a column, and only as often as it can be seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from screens.charts.curve import Curve, colours, curve
from screens.charts.data import ChartData, ChartsPage
from screens.charts.plot import STEP, TIME, ChartView
from workbench.metrics.chart_buckets import buckets
from workbench.metrics.queries import series
from workbench.store.db.database import Store
from workbench.store.db.rows import SeriesRow

AT_ONCE: Final = 4
"""So many charts are read before it is known which are in view."""
BESIDE: Final = "etime"
"""The kind of series that says when a metric was measured, in the job's own terms: epochs, iterations."""
STALE_SECONDS: Final = 2.0
"""Curves of which less than a dot is missing are read again no later than that."""


@dataclass(frozen=True, slots=True)
class Charted:
    """A job whose metrics are drawn, and what its curves are called."""

    job_id: str
    label: str
    start_us: int
    """What time is counted from."""


@dataclass(slots=True)
class _Kept:
    """What was read of a chart, and when."""

    rows: list[SeriesRow]
    data: ChartData
    points: int
    read_at: float


Found = list[tuple[Charted, SeriesRow]]


def charts_page(
    charted: Sequence[Charted],
    wanted: Sequence[str] | None,
    width: int,
    view: ChartView,
    kinds: tuple[str, ...],
) -> Callable[[Store], ChartsPage]:
    """Return the query for charts of one job, or of several laid over each other.

    ``wanted`` are the metrics in view, None for the first few; ``width`` is in columns.
    """
    reader = _Reader(charted, width, view)

    def read(store: Store) -> ChartsPage:
        found: dict[str, Found] = {}
        beside: dict[tuple[str, int, str], SeriesRow] = {}
        for one in charted:
            for row in series(store, one.job_id, kinds=(*kinds, BESIDE)):
                if row.kind == BESIDE:
                    beside[one.job_id, row.learner, row.name] = row
                else:
                    found.setdefault(row.name, []).append((one, row))
        reader.beside = beside
        names = tuple(sorted(found, key=sort_key))
        shown = names[:AT_ONCE] if wanted is None else wanted
        charts = {name: reader.chart(store, name, found[name]) for name in shown if name in found}
        others = {name.rpartition("/")[2] for _, _, name in beside} - {STEP, TIME}
        return ChartsPage(names, charts, view, (STEP, TIME, *sorted(others)))

    return read


def sort_key(name: str) -> tuple[str, str]:
    """Sort metrics by their group, those without one first."""
    group, _, metric = name.rpartition("/")
    return group.lower(), metric.lower()


class _Reader:
    """Keeps what was read, so that curves that would look the same are not read again."""

    def __init__(self, charted: Sequence[Charted], width: int, view: ChartView) -> None:
        self._several = len(charted) > 1
        self._width = width
        self._view = view
        self._kept: dict[str, _Kept] = {}
        self.beside: dict[tuple[str, int, str], SeriesRow] = {}
        """What was reported beside metrics, by job, learner and name."""

    def chart(self, store: Store, name: str, found: Found) -> ChartData:
        """Return one chart: its values are those of now, its curves at most a dot behind."""
        rows = [row for _, row in found]
        kept = self._kept.get(name)
        if kept is not None and kept.rows == rows:
            return kept.data
        points, now = sum(row.points for row in rows), time.monotonic()
        if kept is None or self._seen(kept, len(rows), points, now):
            kept = _Kept(rows, _data(name, rows, self._curves(store, found)), points, now)
        else:
            kept = _Kept(rows, _data(name, rows, kept.data.curves), kept.points, kept.read_at)
        self._kept[name] = kept
        return kept.data

    def _seen(self, kept: _Kept, curves: int, points: int, now: float) -> bool:
        """Say whether new points would be seen: a dot is worth ``points / (2 * width)`` of them."""
        grown = points - kept.points
        many = grown > points / (2 * self._width)
        return curves != len(kept.rows) or many or now - kept.read_at >= STALE_SECONDS

    def _curves(self, store: Store, found: Found) -> tuple[Curve, ...]:
        labels = [self._label(one, row, len(found)) for one, row in found]
        chosen = colours(labels)
        return tuple(
            self._curve(store, one, row, label, chosen[label])
            for (one, row), label in zip(found, labels, strict=True)
        )

    def _curve(self, store: Store, one: Charted, row: SeriesRow, label: str, colour: int) -> Curve:
        view = self._view
        low, high = _window(view, one)
        if (placed := self._placed(store, one, row, label, colour)) is not None:
            return placed
        by = TIME if view.over_time else STEP
        read = buckets(store, row.id, width=self._width, x_from=low, x_to=high, by=by)  # type: ignore[arg-type] # one of its two
        return curve(label, colour, read, start_us=one.start_us if view.over_time else None)

    def _placed(self, store: Store, one: Charted, row: SeriesRow, label: str, colour: int) -> Curve | None:
        """Return a curve over what was reported beside it; None where nothing was, or not with every point."""
        group = row.name.rpartition("/")[0]
        name = f"{group}/{self._view.axis}" if group else self._view.axis
        x = self.beside.get((one.job_id, row.learner, name))
        if x is None or x.points != row.points:
            return None
        # As many points of both make the same buckets of both.
        places = [bucket.last for bucket in buckets(store, x.id, width=self._width)]
        return curve(label, colour, buckets(store, row.id, width=self._width), places=places)

    def _label(self, one: Charted, row: SeriesRow, curves: int) -> str:
        if self._several:
            return one.label if row.learner == 1 else f"{one.label} [{row.learner}]"
        return f"learner {row.learner}" if curves > 1 else row.name


def _data(name: str, rows: Sequence[SeriesRow], curves: tuple[Curve, ...]) -> ChartData:
    lows = [row.minimum for row in rows if row.minimum is not None]
    highs = [row.maximum for row in rows if row.maximum is not None]
    points = sum(row.points for row in rows)
    return ChartData(name, curves, rows[0].last, min(lows, default=None), max(highs, default=None), points)


def _window(view: ChartView, one: Charted) -> tuple[int | None, int | None]:
    """Return the part of a series to read, in its own terms."""
    if view.x_low is None or view.x_high is None or view.axis not in (STEP, TIME):
        return None, None
    if view.over_time:
        return int(one.start_us + view.x_low * 1e6), int(one.start_us + view.x_high * 1e6)
    return int(view.x_low), int(view.x_high) + 1
