"""Reads charts from the store's roll-ups: about two points a column, and only as often as it is visible."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Final

from screens.charts.curve import Curve, colours, curve, extended
from screens.charts.data import ChartData, ChartsPage
from screens.charts.plot import STEP, TIME, ChartView
from workbench.metrics.chart_axis import ChartRange, chart_axis, chart_points, points_behind
from workbench.metrics.queries import series
from workbench.store.db.database import Store
from workbench.store.db.rows import Bucket, SeriesRow
from workbench.values import dataclass

AT_ONCE: Final = 4
"""So many charts are read before it is known which are in view."""
BESIDE: Final = "etime"
"""The kind of series that says when a metric was measured, in the job's own terms: epochs, iterations."""
STALE_SECONDS: Final = 2.0
"""Curves of which less than a dot is missing are read again no later than that."""
EXTENDED_BY: Final = 4
"""New points are added to a curve until they are one of so many parts of it: then all of it is read again."""


@dataclass(frozen=True, slots=True)
class Charted:
    """A job whose metrics are drawn, and what its curves are called."""

    job_id: str
    label: str
    start_us: int
    """What time is counted from."""
    colour: int = 0
    """The colour of its curves in every chart; 0: one by their labels."""


@dataclass(slots=True)
class _Kept:
    """What was read of a chart, and when."""

    rows: list[SeriesRow]
    """As its values were read."""
    drawn: list[SeriesRow]
    """As its curves were read: points may have come since."""
    data: ChartData
    read_at: float

    @property
    def is_stale(self) -> bool:
        """Whether its curves miss points."""
        return self.rows != self.drawn


Found = list[tuple[Charted, SeriesRow]]


class ChartsQuery:
    """The query for charts of one job, or of several laid over each other."""

    def __init__(
        self,
        charted: Sequence[Charted],
        in_view: Sequence[str] | None,
        width: int,
        view: ChartView,
        kinds: tuple[str, ...],
    ) -> None:
        self._charted = charted
        self._in_view = in_view
        self._view = view
        self._kinds = kinds
        self._reader = _Reader(charted, width, view)

    def __call__(self, store: Store) -> ChartsPage:
        """Read the charts in view."""
        found: dict[str, Found] = {}
        extra: set[str] = set()
        for one in self._charted:
            for row in series(store, one.job_id, kinds=(*self._kinds, BESIDE)):
                if not row.points:
                    continue  # all of them were given up
                if row.kind == BESIDE:
                    extra.add(row.name.rpartition("/")[2])
                else:
                    found.setdefault(row.name, []).append((one, row))
        names = tuple(sorted(found, key=sort_key))
        shown = names[:AT_ONCE] if self._in_view is None else self._in_view
        charts = {name: self._reader.chart(store, name, found[name]) for name in shown if name in found}
        return ChartsPage(names, charts, self._view, (STEP, TIME, *sorted(extra - {STEP, TIME})))

    @property
    def again_at(self) -> float | None:
        """When it is to be read once more though nothing changes (``time.monotonic``): some curves miss points."""
        return self._reader.again_at


def charts_page(
    charted: Sequence[Charted],
    in_view: Sequence[str] | None,
    width: int,
    view: ChartView,
    kinds: tuple[str, ...],
) -> ChartsQuery:
    """Return the query for charts of one job, or of several laid over each other.

    ``in_view`` are the metrics in view, None for the first few; ``width`` is in columns.
    """
    return ChartsQuery(charted, in_view, width, view, kinds)


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

    @property
    def again_at(self) -> float | None:
        """When the curves that miss points are due."""
        return min(
            (kept.read_at + STALE_SECONDS for kept in self._kept.values() if kept.is_stale), default=None
        )

    def chart(self, store: Store, name: str, found: Found) -> ChartData:
        """Return one chart: its values are those of now, its curves at most a dot, or some seconds, behind."""
        rows = [row for _, row in found]
        kept = self._kept.get(name)
        if kept is None or self._is_due(kept, rows):
            if extended := self._extended(store, kept, found):
                axis, curves = extended
                data = _data(name, rows, curves, axis)
            else:
                data = self._read_anew(store, name, found)
            kept = _Kept(rows, rows, data, time.monotonic())
        elif kept.rows != rows:
            data = kept.data
            if not self._view.is_zoomed:  # what a window holds is known of its curves alone
                data = _data(name, rows, kept.data.curves, kept.data.axis)
            kept = _Kept(rows, kept.drawn, data, kept.read_at)
        self._kept[name] = kept
        return kept.data

    def _is_due(self, kept: _Kept, rows: Sequence[SeriesRow]) -> bool:
        """Say whether new points would be visible: a dot is worth ``points / (2 * width)`` of them."""
        if kept.drawn == rows:
            return False
        points = sum(row.points for row in rows)
        grown = points - sum(row.points for row in kept.drawn)
        many = grown < 0 or grown > points / (2 * self._width)
        return len(rows) != len(kept.drawn) or many or time.monotonic() - kept.read_at >= STALE_SECONDS

    def _extended(
        self, store: Store, kept: _Kept | None, found: Found
    ) -> tuple[str, tuple[Curve, ...]] | None:
        """Return the curves that were read, with the new points behind theirs; None where they are to be read again.

        To read the whole of twelve series every other second would take a tenth of a core.
        """
        if kept is None or self._view.is_zoomed or len(kept.drawn) != len(found):
            return None
        axis, curves = kept.data.axis, []
        for (one, row), before, known in zip(found, kept.drawn, kept.data.curves, strict=True):
            grown = len(known.x) + row.points - before.points
            if not known.x or row.points < before.points or grown > 2 * self._width * (1 + 1 / EXTENDED_BY):
                return None
            over_time = axis == TIME
            last_x = round(known.x[-1] * 1e6) + one.start_us if over_time else known.x[-1]
            new = points_behind(store, before, row, axis, last_x)
            if new is None:
                return None
            start_us = one.start_us if over_time else None
            curves.append(extended(known, curve(known.label, known.colour, new, start_us=start_us)))
        return axis, tuple(curves)

    def _read_anew(self, store: Store, name: str, found: Found) -> ChartData:
        """Read a chart: what x is, one thing for all curves, the curves, and what the points in view come to."""
        rows = [row for _, row in found]
        labels = [self._label(one, row, len(found)) for one, row in found]
        chosen = colours(labels)
        axis = self._view.axis
        if axis == STEP:
            axis = chart_axis(store, rows)
        read = self._read(store, found, axis)
        if read is None:
            axis = chart_axis(store, rows)
            read = self._read(store, found, axis) or [[] for _ in found]
        curves = tuple(
            curve(label, one.colour or chosen[label], parts, start_us=one.start_us if axis == TIME else None)
            for (one, _), label, parts in zip(found, labels, read, strict=True)
        )
        if not self._view.is_zoomed:
            return _data(name, rows, curves, axis)
        return self._in_window(store, name, found, axis, read, curves)

    def _in_window(
        self,
        store: Store,
        name: str,
        found: Found,
        axis: str,
        read: Sequence[Sequence[Bucket]],
        curves: tuple[Curve, ...],
    ) -> ChartData:
        """Return a zoomed chart with what the points in its window come to."""
        values = [
            value
            for each, parts in zip(found, read, strict=True)
            for bucket in self._without_infinities(store, each, axis, parts)
            for value in (bucket.minimum, bucket.maximum)
            if value is not None and math.isfinite(value)
        ]
        last = next(reversed(curves[0].value), math.nan)
        points = sum(bucket.count for parts in read for bucket in parts)
        return ChartData(
            name,
            curves,
            None if math.isnan(last) else last,
            min(values, default=None),
            max(values, default=None),
            points,
            axis,
        )

    def _without_infinities(
        self, store: Store, each: tuple[Charted, SeriesRow], axis: str, parts: Sequence[Bucket]
    ) -> Sequence[Bucket]:
        """Return the points one by one where infinities hide the extremes of buckets."""
        ends = (value for bucket in parts for value in (bucket.minimum, bucket.maximum) if bucket.count > 1)
        if not any(value is not None and math.isinf(value) for value in ends):
            return parts
        one, row = each
        shown = ChartRange(*_window(self._view, one, axis))
        return chart_points(store, row, axis, width=row.points + row.superseded, shown=shown) or ()

    def _read(self, store: Store, found: Found, axis: str) -> list[list[Bucket]] | None:
        """Read the points of all series over an axis; None where some have no place on it."""
        read: list[list[Bucket]] = []
        for one, row in found:
            low, high = _window(self._view, one, axis)
            parts = chart_points(store, row, axis, width=self._width, shown=ChartRange(low, high))
            if parts is None:
                return None
            read.append(parts)
        return read

    def _label(self, one: Charted, row: SeriesRow, curves: int) -> str:
        if self._several:
            return one.label if row.learner == 1 else f"{one.label} [{row.learner}]"
        return f"learner {row.learner}" if curves > 1 else row.name


def _data(name: str, rows: Sequence[SeriesRow], curves: tuple[Curve, ...], axis: str) -> ChartData:
    lows = [row.minimum for row in rows if row.minimum is not None]
    highs = [row.maximum for row in rows if row.maximum is not None]
    points = sum(row.points for row in rows)
    return ChartData(
        name, curves, rows[0].last, min(lows, default=None), max(highs, default=None), points, axis
    )


def _window(view: ChartView, one: Charted, axis: str) -> tuple[float | None, float | None]:
    """Return the part of a series to read, in its own terms: a zoom is one of what each chart has as x."""
    if view.x_low is None or view.x_high is None:
        return None, None
    if axis == TIME:
        return one.start_us + round(view.x_low * 1e6), one.start_us + round(view.x_high * 1e6)
    return view.x_low, view.x_high
